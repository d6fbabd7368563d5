#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "runtime/decode/language_model.h"
#include "runtime/errors.h"
#include "runtime/load/model.h"

namespace warpfuse::host {
namespace {

// The methods of a bundle's model, around that of the file; {} takes the logits of its result. The
// cache is i64[1, 2, B, 1, slots, 1], of which one half is used.
constexpr const char* kMethods = R"(
def forward(self, ids, pos, cache):
    return self.model.forward(ids){}

def prefill(self, ids, pos, last, cache):
    seen = cache[0, 0, :, 0, :, 0].scatter_(1, pos, ids)
    logits = self.forward(seen, pos, cache)
    at = pos.gather(1, last.unsqueeze(1)).unsqueeze(2)
    return logits.gather(1, at.expand(-1, -1, logits.size(2))).squeeze(1)

def decode(self, ids, pos, cache):
    return self.prefill(ids, pos, torch.zeros_like(pos).squeeze(1), cache)
)";

// What takes the logits out of the result of forward, in TorchScript.
std::string selection_of(const torch::jit::Module& module, const std::string& file) {
  const auto method = module.find_method("forward");
  if (!method) {
    fail(ExitCode::model, "{}: no method 'forward'", file);
  }
  const c10::FunctionSchema& schema = method->function().getSchema();
  const auto is_needed = [](const c10::Argument& each) { return !each.default_value(); };
  const auto needed = std::ranges::count_if(schema.arguments(), is_needed) - 1;  // less self
  if (needed != 1) {
    fail(ExitCode::model, "{}: forward takes {} arguments; expected token ids alone", file, needed);
  }
  const c10::TypePtr& result = schema.returns().front().type();
  if (result->cast<c10::DictType>()) {
    return R"(["logits"])";
  }
  return result->cast<c10::TupleType>() ? "[0]" : "";
}

// The size of the logits of one token.
int64_t vocabulary_of(const torch::jit::Module& module, c10::Device device,
                      const std::string& file) {
  const c10::InferenceMode inference;
  const at::Tensor ids = at::zeros({1, 1}, at::TensorOptions(at::kLong).device(device));
  const c10::IValue result = module.get_method("forward")({ids, ids, ids});
  if (!result.isTensor() || result.toTensor().dim() != 3) {
    fail(ExitCode::model, "{}: forward: expected logits [B, T, V], got {}", file,
         result.isTensor() ? fmt::format("{} dimensions", result.toTensor().dim())
                           : result.tagKind());
  }
  return result.toTensor().size(2);
}

}  // namespace

LanguageModel load_uncached_model(const std::filesystem::path& path, c10::Device device,
                                  int64_t context, bool rewritten) {
  const std::string file = path.string();
  torch::jit::Module inner = load_torchscript(path, device);
  if (rewritten) {
    rewrite_loaded(inner, file, device, {{"forward", {{.sizes = {"B", "T"}, .dtype = at::kLong}}}});
  }
  return translating_errors(ExitCode::model, file, [&] {
    torch::jit::Module module("Uncached");
    module.register_module("model", inner);
    module.define(fmt::format(kMethods, selection_of(inner, file)));
    apply_passes(module, device);
    const LanguageModelSpec spec{.context = context,
                                 .layers = 1,
                                 .heads = 1,
                                 .head_dim = 1,
                                 .vocab_size = vocabulary_of(module, device, file),
                                 .end_tokens = std::nullopt};
    const Bundle bundle{.folder = path,
                        .model = file,
                        .variant = {},
                        .dtype = at::kLong,  // of the cache
                        .schema_version = WARPFUSE_SCHEMA_VERSION,
                        .operators = {},
                        .model_sha256 = {},
                        .language_model = spec,
                        .inputs = {}};
    return LanguageModel(bundle, module, device);
  });
}

}  // namespace warpfuse::host
