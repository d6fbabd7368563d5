// CPU matmuls of a model by oneDNN, with prepacked weights.

#include <ATen/ATen.h>
#include <torch/csrc/jit/passes/freeze_module.h>

#include <string>

#include "method_graph.h"
#include "plugin_under_test.h"
#include "runtime/load/graph_passes.h"
#include "runtime/load/model.h"
#include "support/catch.h"

namespace {

namespace jit = torch::jit;

// A linear layer with a bias; in the module below its weight is used once.
jit::Module layer(const at::Tensor& weight, const at::Tensor& bias) {
  jit::Module module("Layer");
  module.register_parameter("weight", weight, false);
  module.register_parameter("bias", bias, false);
  module.define("def forward(self, x):\n  return torch.linear(x, self.weight, self.bias)\n");
  return module;
}

// All forms: a layer of its own, a matmul with a weight [in, out], and a tied head. The same
// numbers each time; what has run is not to be packed.
jit::Module model(at::ScalarType dtype) {
  at::manual_seed(1);
  const auto random = [&](at::IntArrayRef sizes) { return at::randn(sizes, dtype); };
  jit::Module module("Model");
  module.register_parameter("embedding", random({11, 6}), false);
  module.register_parameter("weight", random({8, 6}), false);
  module.register_parameter("bias", random({6}), false);
  module.register_parameter("matrix", random({5, 6}), false);
  module.register_module("layer", layer(random({8, 6}), random({8})));
  module.define(R"(
def forward(self, ids):
    x = torch.embedding(self.embedding, ids)
    h = self.layer.forward(x).relu()
    h = torch.addmm(self.bias, h, self.weight) + torch.addmm(self.bias, h, self.weight, beta=2)
    h = h + torch.addmm(self.matrix, self.layer.forward(x), self.weight)
    return torch.linear(h, self.embedding)
)");
  module.define("def decode(self, ids):\n  return self.forward(ids)\n");
  module.eval();
  return module;
}

at::Tensor run(const jit::Module& module, const std::string& method) {
  return run_method(module, method, at::arange(5));
}

}  // namespace

TEST_CASE("packed weights give the same results", "[packed-weights]") {
  jit::Module module = model(at::kFloat);
  const at::Tensor expected = run(model(at::kFloat), "forward");
  warpfuse::host::pack_weights(module);
  for (const char* method : {"forward", "decode"}) {
    INFO(method);
    CHECK(at::allclose(run(module, method), expected, 1e-5, 1e-5));
    // All but two addmm, one with twice the bias and one with a whole matrix.
    CHECK(count_nodes(module, method, "mkldnn::_linear_pointwise") == 4);
  }
}

TEST_CASE("weights that nothing reads any more are freed", "[packed-weights]") {
  jit::Module module = model(at::kFloat);
  warpfuse::host::pack_weights(module);
  CHECK(module.attr("layer").toModule().attr("weight").toTensor().numel() == 0);
  CHECK(module.attr("layer").toModule().attr("bias").toTensor().numel() == 8);
  CHECK(module.attr("embedding").toTensor().numel() == 66);  // rows of it are read
  CHECK(module.attr("weight").toTensor().numel() == 48);     // by matmuls that stay
}

TEST_CASE("a frozen module's weights are packed too", "[packed-weights]") {
  jit::Module module = model(at::kFloat);
  const at::Tensor expected = run(model(at::kFloat), "forward");
  jit::Module frozen = jit::freeze_module(module, {"forward", "decode"});
  warpfuse::host::pack_weights(frozen);
  CHECK(at::allclose(run(frozen, "forward"), expected, 1e-5, 1e-5));
  // The layer's two calls have become one.
  CHECK(count_nodes(frozen, "forward", "mkldnn::_linear_pointwise") == 3);
}

TEST_CASE("other dtypes stay as they are", "[packed-weights]") {
  jit::Module module = model(at::kDouble);
  const at::Tensor expected = run(model(at::kDouble), "forward");
  warpfuse::host::pack_weights(module);
  CHECK(run(module, "forward").equal(expected));
  CHECK(count_nodes(module, "forward", "mkldnn::_linear_pointwise") == 0);
}

TEST_CASE("weights that the plugin reads are not packed beside it", "[packed-weights]") {
  load_plugin_under_test();
  const auto make = [] {
    at::manual_seed(2);
    jit::Module module = layer(at::randn({6, 6}), at::randn({6}));
    module.define("def decode(self, x):\n  return torch.linear(x, self.weight, self.bias)\n");
    module.define(R"(
def prefill(self, x):
    return torch.linear(x, self.weight, self.bias) + torch.addmm(self.bias, x, self.weight.t())
)");
    // TorchScript's parser knows no operators of libraries.
    const auto graph = jit::toGraphFunction(module.get_method("decode").function()).graph();
    jit::Node* const linear = graph->outputs()[0]->node();
    const jit::WithInsertPoint here(linear);
    graph->registerOutput(
        graph->insert(c10::Symbol::fromQualString("warpfuse::linear_residual"),
                      {linear->input(0), linear->input(1), linear->input(2), linear->input(0)}));
    graph->eraseOutput(0);
    return module;
  };
  jit::Module module = make();
  warpfuse::host::pack_weights(module);
  for (const char* method : {"decode", "prefill"}) {
    INFO(method);
    const at::Tensor x = at::ones({2, 6});
    CHECK(at::allclose(run_method(module, method, x), run_method(make(), method, x), 1e-5, 1e-5));
  }
  CHECK(count_nodes(module, "prefill", "mkldnn::_linear_pointwise") == 2);
  CHECK(module.attr("weight").toTensor().numel() == 36);
  CHECK_FALSE(module.hasattr("packed_weight_0"));
}

TEST_CASE("weights keep their numbers on the way to huge pages", "[packed-weights]") {
  at::manual_seed(3);
  const at::Tensor large = at::randn({1500, 700}), part = large.narrow(0, 1, 1400);
  const at::Tensor expected = large.clone();
  jit::Module module("Weights");
  module.register_parameter("large", large, false);
  module.register_parameter("part", part, false);
  module.register_parameter("empty", at::empty({0}), false);
  warpfuse::host::settle_weights(module);
  CHECK(large.equal(expected));
  large.add_(1);
  CHECK(part.equal(expected.narrow(0, 1, 1400) + 1));
}
