#include "runtime/decode/language_model.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <fmt/ostream.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <algorithm>

#include "runtime/errors.h"
#include "runtime/load/graph_passes.h"
#include "runtime/load/model.h"
#include "runtime/threads.h"

namespace warpfuse::host {
namespace {

constexpr int64_t kSmallestBucket = 128;
// A step reads a whole bucket of a large batch. In steps of 128 it would read less yet, but cuBLAS
// takes 1.5 times as long for scores of 640 slots as for those of 768.
constexpr int64_t kBucketStep = 256;
constexpr double kGigabyte = 1e9;

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

Cache Cache::rows(int64_t first, int64_t count) const { return {entries.narrow(2, first, count)}; }

Cache Cache::slots(int64_t count) const { return {entries.narrow(4, 0, count)}; }

int64_t cache_bucket(int64_t length, int64_t context) {
  const int64_t steps = (length + kBucketStep - 1) / kBucketStep;
  return std::min(length <= kSmallestBucket ? kSmallestBucket : steps * kBucketStep, context);
}

LanguageModel::LanguageModel(const Bundle& bundle, torch::jit::Module module, c10::Device device)
    : spec_(language_model_of(bundle)),
      dtype_(bundle.dtype),
      module_(std::move(module)),
      device_(device) {
  for (const char* method : kLanguageModelMethods) {
    if (!module_.find_method(method)) {
      fail(ExitCode::model, "{}: no method '{}'", bundle.model_file().string(), method);
    }
  }
  for (const at::Tensor& parameter : module_.parameters()) {
    weight_bytes_ += static_cast<int64_t>(parameter.nbytes());
  }
}

int64_t LanguageModel::cache_bytes(int64_t rows, int64_t slots) const {
  constexpr int64_t kTooMany = INT64_MAX / 4;  // a damaged bundle's, which can be added up
  int64_t bytes = 2 * static_cast<int64_t>(c10::elementSize(dtype_));
  for (const int64_t size : {spec_.layers, rows, spec_.heads, slots, spec_.head_dim}) {
    bytes = size > 0 && bytes > kTooMany / size ? kTooMany : bytes * size;
  }
  return bytes;
}

Cache LanguageModel::make_cache(int64_t rows, int64_t slots) const {
  const c10::InferenceMode inference;
  const std::vector<int64_t> shape{spec_.layers, 2, rows, spec_.heads, slots, spec_.head_dim};
  const at::TensorOptions options = at::TensorOptions().dtype(dtype_).device(device_);
  try {
    return {at::zeros(shape, options)};
  } catch (const c10::Error&) {
    fail(ExitCode::device,
         "out of memory: the keys and values of {} sequences of {} tokens take {:.3f} GB each",
         rows, slots, static_cast<double>(cache_bytes(1, slots)) / kGigabyte);
  }
}

int64_t LanguageModel::slots_for(int64_t length) const {
  return device_.is_cuda() ? cache_bucket(length, spec_.context) : length;
}

at::Tensor LanguageModel::call(const char* method, std::vector<c10::IValue> inputs,
                               at::IntArrayRef expected, bool is_logits) const {
  const c10::IValue result = translating_errors(ExitCode::model, method, [&] {
    const c10::InferenceMode inference;
    // Also on a thread that loaded no model: model.cpp says why.
    const torch::jit::GraphOptimizerEnabledGuard not_optimised(false);
    return module_.get_method(method)(std::move(inputs));
  });
  if (device_.is_cpu()) {
    watch_load();
  }
  const auto has_dtype = [&](const at::Tensor& tensor) {
    return is_logits ? tensor.is_floating_point() : tensor.scalar_type() == at::kLong;
  };
  if (!result.isTensor() || result.toTensor().sizes() != expected ||
      !has_dtype(result.toTensor()) || result.toTensor().device() != device_) {
    const std::string found =
        result.isTensor()
            ? fmt::format("{} {} on {}", c10::toString(result.toTensor().scalar_type()),
                          fmt::streamed(result.toTensor().sizes()),
                          result.toTensor().device().str())
            : result.tagKind();
    fail(ExitCode::model, "{}: expected {} {} on {}, got {}", method,
         is_logits ? "logits" : "tokens", fmt::streamed(expected), device_.str(), found);
  }
  return result.toTensor();
}

at::Tensor LanguageModel::prefill(const at::Tensor& ids, const at::Tensor& positions,
                                  const at::Tensor& last, const Cache& cache) const {
  return call("prefill", {ids, positions, last, cache.entries}, {ids.size(0), spec_.vocab_size});
}

at::Tensor LanguageModel::decode(const at::Tensor& ids, const at::Tensor& positions,
                                 const Cache& cache) const {
  return call("decode", {ids, positions, cache.entries}, {ids.size(0), spec_.vocab_size});
}

at::Tensor LanguageModel::next(const at::Tensor& ids, const at::Tensor& positions,
                               const Cache& cache) const {
  return call(kNextMethod, {ids, positions, cache.entries}, {ids.size(0)}, /*is_logits=*/false);
}

at::Tensor LanguageModel::forward(const at::Tensor& ids, const at::Tensor& positions,
                                  const Cache& cache) const {
  return call("forward", {ids, positions, cache.entries},
              {ids.size(0), ids.size(1), spec_.vocab_size});
}

void LanguageModel::require_known(const std::vector<int64_t>& ids) const {
  for (const int64_t id : ids) {
    if (id < 0 || id >= spec_.vocab_size) {
      fail(ExitCode::model, "token id {} is outside the model's vocabulary of {}", id,
           spec_.vocab_size);
    }
  }
}

void LanguageModel::require_fits(int64_t tokens, const std::string& source) const {
  if (tokens > spec_.context) {
    fail(ExitCode::model, "{}{}the prompt has {} tokens, the model's context is {}", source,
         source.empty() ? "" : ": ", tokens, spec_.context);
  }
}

at::Tensor positions_of(const at::Tensor& ids, int64_t before) {
  return at::arange(before, before + ids.size(1), ids.options()).expand(ids.sizes());
}

void apply_passes(torch::jit::Module& module, c10::Device device) {
  keep_arguments(module);
  if (device.is_cpu()) {
    pack_weights(module);
  } else {
    fuse_epilogues(module);
  }
}

LanguageModel load_language_model(const Bundle& bundle, c10::Device device, bool rewritten) {
  torch::jit::Module module = load_module(bundle, device);
  LanguageModel model(bundle, module, device);
  if (rewritten) {
    rewrite_loaded(module, bundle.folder.string(), device, language_model_arguments());
  }
  apply_passes(module, device);
  if (device.is_cpu()) {
    settle_weights(module);
  }
  return model;
}

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
