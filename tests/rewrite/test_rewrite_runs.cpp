// A rewritten module runs like any other: frozen before or after, optimised for inference, saved
// and loaded again, with attributes and indices of all kinds.

#include <torch/csrc/jit/serialization/import.h>

#include <sstream>

#include "rewrite/rewritten.h"
#include "support/catch.h"

namespace {

namespace jit = torch::jit;

// A learned bias, the causal rule and a boolean mask.
const char* const kMasked =
    "  x = (s * 0.5 + self.bias).masked_fill(self.tril[:, :, :s.size(2), :s.size(3)] == False, "
    "float('-inf'))\n  w = x.softmax(-1) + s.masked_fill(visible.logical_not(), "
    "-2.0).softmax(-1)\n";

std::vector<std::string> masks(const warpfuse::RewriteReport& report) {
  std::vector<std::string> names;
  for (const warpfuse::RewrittenSoftmax& each : report.softmaxes) {
    names.push_back(each.mask);
  }
  return names;
}

const std::vector<std::string> kMasks = {"causal + additive", "boolean, filled"};

void check_equal(jit::Module& module, jit::Module& original) {
  for (const auto& [batch, queries, keys] : {std::tuple{2, 5, 7}, {1, 1, 1}, {3, 6, 6}}) {
    const std::vector<c10::IValue> arguments = attention_inputs(batch, queries, keys);
    // Twice, since the first run of an optimised graph profiles it.
    for (int run = 0; run < 2; ++run) {
      const at::Tensor result = module.forward(arguments).toTensor();
      CHECK(at::allclose(result, result_of(original, arguments).value(), 1e-5, 1e-6));
    }
  }
}

int64_t calls_of(const jit::Module& module, const std::string& name) {
  const std::string graph = module.get_method("forward").graph()->toString();
  int64_t calls = 0;
  for (size_t at = graph.find(name); at != std::string::npos; at = graph.find(name, at + 1)) {
    ++calls;
  }
  return calls;
}

}  // namespace

TEST_CASE("a rewritten module is frozen, optimised, saved and loaded", "[rewrite]") {
  Rewritten model(attention_model(kMasked), attention_options());
  REQUIRE(masks(model.report) == kMasks);
  SECTION("frozen") {
    jit::Module frozen = jit::freeze(model.module);
    CHECK(calls_of(frozen, "warpfuse::scaled_masked_softmax") == 2);
    check_equal(frozen, model.original);
  }
  SECTION("optimised for inference") {
    jit::Module optimised = jit::optimize_for_inference(model.module);
    CHECK(calls_of(optimised, "warpfuse::scaled_masked_softmax") == 2);
    check_equal(optimised, model.original);
  }
  SECTION("saved and loaded") {
    std::stringstream stream;
    model.module.save(stream);
    jit::Module loaded = jit::load(stream);
    CHECK(calls_of(loaded, "warpfuse::scaled_masked_softmax") == 2);
    check_equal(loaded, model.original);
    CHECK(warpfuse::rewrite(loaded, attention_options()).routed() == 0);
  }
}

TEST_CASE("freezing before the rewrite changes no mask", "[rewrite]") {
  warpfuse::RewriteOptions options = attention_options();
  SECTION("by the rewrite") {
    options.freeze = true;
    Rewritten model(attention_model(kMasked), options);
    CHECK(masks(model.report) == kMasks);
    CHECK(calls_of(model.module, "prim::GetAttr") == 0);
    CHECK(calls_of(model.original, "prim::GetAttr") != 0);
    check_equal(model.module, model.original);
    CHECK(warpfuse::rewrite(model.module, options).routed() == 0);  // frozen again
  }
  SECTION("by the caller") {
    Rewritten model(jit::freeze(attention_model(kMasked)), options);
    CHECK(masks(model.report) == kMasks);
    jit::Module original = attention_model(kMasked);
    check_equal(model.module, original);
  }
}

TEST_CASE("freezing keeps every method", "[rewrite]") {
  jit::Module module = attention_model("  w = s.softmax(-1)\n");
  module.define("def twice(self, x):\n  return torch.softmax(x * 2.0 + self.slots[0], -1)\n");
  module.eval();
  warpfuse::RewriteOptions options;
  options.freeze = true;
  CHECK(warpfuse::rewrite(module, options).routed() == 2);
  const at::Tensor x = at::randn({2, 3});
  CHECK(at::allclose(module.get_method("twice")({x}).toTensor(), (x * 2).softmax(-1)));
}

TEST_CASE("an index of None or a mask is left to the graph", "[rewrite]") {
  const auto model_of = [](const std::string& result, const std::vector<std::string>& sizes) {
    jit::Module module("Model");
    module.register_attribute("training", c10::BoolType::get(), false);
    module.register_buffer("taken", at::tensor({0, 2, 1}, at::kLong));
    module.define("def forward(self, x):\n  return torch.softmax(" + result + ", -1)\n");
    warpfuse::RewriteOptions options;
    if (!sizes.empty()) {
      options.arguments["forward"] = {{.sizes = sizes}};
    }
    return Rewritten(module, options);
  };
  for (const char* const result :
       {"x[:, self.taken].transpose(1, 2)", "x[:, self.taken][:, :, 0]", "x[self.taken > 0]",
        "torch.matmul(x, x.transpose(1, 2))[:, :, self.taken] * 0.5"}) {
    for (const std::vector<std::string>& sizes : {{}, std::vector<std::string>{"B", "T", "D"}}) {
      INFO(result << " " << sizes.size());
      Rewritten model = model_of(result, sizes);
      check_same(model, [] { return std::vector<c10::IValue>{at::ones({3, 4, 5}).cumsum(2)}; });
    }
  }
  // Five dimensions, which the operator does not take.
  Rewritten model = model_of("torch.matmul(x, x.transpose(3, 4))[:, :, :, self.taken] * 0.5",
                             {"A", "B", "H", "T", "D"});
  check_same(model, [] { return std::vector<c10::IValue>{at::ones({2, 1, 2, 4, 5}).cumsum(4)}; });
}

TEST_CASE("attributes that are sparse, quantized or empty are left to the graph", "[rewrite]") {
  jit::Module module("Model");
  module.register_attribute("training", c10::BoolType::get(), false);
  module.register_buffer("sparse", at::eye(4).to_sparse());
  module.register_buffer("quantized", at::quantize_per_tensor(at::ones({1}), 0.5, 0, at::kQUInt8));
  module.register_buffer("empty", at::ones({0, 4}));
  module.define(
      "def forward(self, x):\n  s = torch.matmul(x, x.t()) + self.sparse\n"
      "  return torch.cat([s * self.quantized.dequantize(), self.empty]).softmax(-1) +"
      " torch.softmax(s.view([4, 4]) * 0.5, -1)\n");
  Rewritten model(module,
                  {.arguments = {{"forward", {{.sizes = {"4", "3"}, .dtype = at::kFloat}}}}});
  CHECK(model.report.routed() == 2);
  check_same(model, [] { return std::vector<c10::IValue>{at::ones({4, 3}).cumsum(0)}; });
}

TEST_CASE("an attribute that a method changes is no constant", "[rewrite]") {
  struct Case {
    const char *in_forward, *change;  // lines
    const char* mask;
    bool has_scale;
  };
  const Case cases[] = {
      {"", "self.other.fill_(1.0)", "causal", true},
      {"  self.scale = 0.25\n", "pass", "causal", false},
      {"", "self.scale = 0.25", "causal", false},
      {"", "self.triangle.fill_(1.0)", "boolean", true},
      {"", "self.triangle[:2].mul_(0.0)", "boolean", true},
      {"", "for x in [self.triangle]:\n    x.fill_(1.0)", "boolean", true},
      {"", "self.triangle.resize_([1])", "none", false},
      {"", "self.triangle = self.other", "none", false},
  };
  for (const Case& each : cases) {
    INFO(each.in_forward << each.change);
    jit::Module module("Model");
    module.register_attribute("training", c10::BoolType::get(), false);
    module.register_attribute("scale", c10::FloatType::get(), 0.5);
    module.register_buffer("triangle", at::ones({9, 9}).tril());
    module.register_buffer("other", at::ones({9, 9}));
    module.define("def change(self):\n  " + std::string(each.change) + "\n");
    module.define("def forward(self, q, k):\n  s = torch.matmul(q, k.t()) * self.scale\n" +
                  std::string(each.in_forward) +
                  "  s = s.masked_fill(self.triangle[:q.size(0), :k.size(0)] == 0, float('-inf'))\n"
                  "  return s.softmax(-1)\n");
    Rewritten model(module, {.arguments = {{"forward",
                                            {{.sizes = {"T", "D"}, .dtype = at::kFloat},
                                             {.sizes = {"S", "D"}, .dtype = at::kFloat}}}}});
    INFO(model.only().form);
    CHECK(model.only().mask == each.mask);
    CHECK((model.only().form.find("mul") != std::string::npos) == each.has_scale);
    at::manual_seed(8);
    const at::Tensor q = at::randn({3, 4}), k = at::randn({5, 4});
    for (int call = 0; call < 3; ++call) {
      check_same(model, [&] { return std::vector<c10::IValue>{q, k}; });
    }
  }
}
