#include <ATen/ops/_softmax.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <torch/csrc/jit/ir/irparser.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <thread>

#include "plugin_under_test.h"
#include "runtime/softmax_call_counter.h"
#include "support/catch.h"

using namespace warpfuse::host;

namespace {

// Three softmax calls, two of them routed to the plugin.
constexpr const char* kHalfRouted = R"(
graph(%x : Tensor):
  %dim : int = prim::Constant[value=-1]()
  %none : NoneType = prim::Constant()
  %a : Tensor = warpfuse::softmax(%x, %dim, %none)
  %b : Tensor = aten::softmax(%a, %dim, %none)
  %c : Tensor = warpfuse::log_softmax(%b, %dim, %none)
  return (%c))";

}  // namespace

TEST_CASE("what counts as a softmax", "[softmax-calls]") {
  for (const char* name :
       {"aten::softmax", "aten::log_softmax", "aten::_softmax", "aten::_safe_softmax",
        "aten::scaled_dot_product_attention", "aten::_scaled_dot_product_flash_attention"}) {
    CHECK(softmax_kind(name) == SoftmaxKind::aten);
  }
  for (const char* name : {"warpfuse::softmax", "warpfuse::scaled_masked_softmax",
                           "warpfuse::_softmax_algorithm", "warpfuse::gpt2_step"}) {
    CHECK(softmax_kind(name) == SoftmaxKind::plugin);
  }
  for (const char* name : {"aten::matmul", "aten::_softmax_backward_data",
                           "warpfuse::_softmax_backward", "warpfuse::build_info", "other::softmax",
                           "softmax", "aten::_scaled_dot_product_flash_attention_backward"}) {
    CHECK(softmax_kind(name) == SoftmaxKind::none);
  }
}

TEST_CASE("an operator inside another one is not counted again", "[softmax-calls]") {
  const at::Tensor x = at::randn({2, 4, 8, 16});
  const SoftmaxCallCounter calls;
  at::softmax(x, -1);
  CHECK(calls.total() == 1);
  at::log_softmax(x, -1);
  CHECK(calls.total() == 2);
  at::scaled_dot_product_attention(x, x, x);
  CHECK(calls.total() == 3);
  at::_softmax(x, -1, false);  // by itself it counts
  CHECK(calls.total() == 4);
  at::matmul(x, x.transpose(-1, -2));
  CHECK(calls.total() == 4);
  CHECK(calls.by_plugin() == 0);
}

TEST_CASE("calls are counted on all threads, and only while a counter lives", "[softmax-calls]") {
  const at::Tensor x = at::randn({4, 4});
  at::softmax(x, -1);
  const SoftmaxCallCounter calls;
  std::thread([&] { at::softmax(x, -1); }).join();
  CHECK(calls.total() == 1);
}

TEST_CASE("a half-routed graph shows fewer plugin calls than calls", "[softmax-calls]") {
  load_plugin_under_test();
  auto graph = std::make_shared<torch::jit::Graph>();
  torch::jit::parseIR(kHalfRouted, graph.get());
  torch::jit::GraphExecutor executor(graph, "half_routed");
  const SoftmaxCallCounter calls;
  torch::jit::Stack stack{at::randn({3, 5})};
  executor.run(stack);
  CHECK(calls.total() == 3);
  CHECK(calls.by_plugin() == 2);
}
