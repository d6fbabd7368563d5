// TorchScript: modules that call the plugin, as they are and frozen. Counters must survive
// freezing.

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/irparser.h>

#include "support/compare.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/operators.h"
#include "support/pch.h"

namespace {

/// A module in evaluation mode whose forward is `ir`, with `x`, where given, for its only input.
torch::jit::Module module_of(const std::string& ir, const at::Tensor& x = {}) {
  auto graph = std::make_shared<torch::jit::Graph>();
  torch::jit::parseIR(ir, graph.get());
  if (x.defined()) {
    const torch::jit::WithInsertPoint guard(*graph->nodes().begin());
    graph->inputs()[0]->replaceAllUsesWith(graph->insertConstant(x));
    graph->eraseInput(0);
  }
  torch::jit::Module module("__torch__.Counting");
  module.register_attribute("training", c10::BoolType::get(), false);
  graph->insertInput(0, "self")->setType(module.type());
  module.type()->addMethod(module._ivalue()->compilation_unit()->create_function(
      c10::QualifiedName(*module.type()->name(), "forward"), graph));
  return module;
}

constexpr const char* kCountItself = R"IR(
graph(%x : Tensor):
  %none : NoneType = prim::Constant()
  %dim : int = prim::Constant[value=-1]()
  %name : str = prim::Constant[value="softmax.cpu"]()
  warpfuse::reset_call_counts()
  %once : Tensor = warpfuse::softmax(%x, %dim, %none)
  %twice : Tensor = warpfuse::softmax(%once, %dim, %none)
  %count : int = warpfuse::call_count(%name)
  %result : (Tensor, int) = prim::TupleConstruct(%twice, %count)
  return (%result))IR";

constexpr const char* kCountOnly = R"IR(
graph(%x : Tensor):
  %name : str = prim::Constant[value="softmax.cpu"]()
  %count : int = warpfuse::call_count(%name)
  return (%count))IR";

constexpr const char* kArguments = R"IR(
graph(%x : Tensor):
  %p : float = prim::Constant[value=0.5]()
  %dim : int = prim::Constant[value=1]()
  %on : bool = prim::Constant[value=1]()
  %off : bool = prim::Constant[value=0]()
  %none : NoneType = prim::Constant()
  %y : Tensor = warpfuse::)IR";

}  // namespace

TEST_CASE("a scripted module counts its own calls, frozen or not", "[freeze]") {
  const torch::jit::Module module = module_of(kCountItself);
  const at::Tensor x = random_tensor({3, 33}, at::kFloat);
  const at::Tensor expected = warpfuse::softmax(warpfuse::softmax(x, -1), -1);
  for (torch::jit::Module form : {module, torch::jit::freeze(module)}) {
    for (int call = 0; call < 5; ++call) {  // the profiling executor optimises from call to call
      warpfuse::softmax(x, -1);             // a count that the reset must clear
      const auto result = form.forward({x}).toTuple();
      CHECK(bit_mismatch(result->elements()[0].toTensor(), expected) == "");
      CHECK(result->elements()[1].toInt() == 2);
    }
  }
}

TEST_CASE("freezing does not bake a count into the module", "[freeze]") {
  torch::jit::Module frozen = torch::jit::freeze(module_of(kCountOnly));
  const at::Tensor x = random_tensor({3, 33}, at::kFloat);
  for (int call = 0; call < 5; ++call) {
    const int64_t before = frozen.forward({x}).toInt();
    CHECK(before == warpfuse::call_count("softmax.cpu"));
    warpfuse::softmax(x, -1);
    CHECK(frozen.forward({x}).toInt() == before + 1);
  }
}

WARPFUSE_DEVICE_TEST("freezing does not bake a mask into a module", "[freeze][dropout]") {
  const at::Tensor x = random_tensor({8, 100}, at::kFloat, device);
  for (const std::string call :
       {"dropout_softmax(%x, %dim, %p, %on)", "softmax_dropout(%x, %dim, %p, %on)",
        "linear_dropout_softmax(%x, %x, %none, %p, %on, %off)"}) {
    INFO(call);
    const torch::jit::Module module = module_of(kArguments + call + "\n  return (%y)", x);
    for (torch::jit::Module form : {module, torch::jit::freeze(module)}) {
      std::vector<at::Tensor> outputs;
      for (int run = 0; run < 4; ++run) {
        outputs.push_back(form.forward({}).toTensor());
        for (int before = 0; before < run; ++before) {
          CHECK(!outputs[run].equal(outputs[before]));
        }
      }
      at::manual_seed(1);
      const at::Tensor seeded = form.forward({}).toTensor();
      at::manual_seed(1);
      CHECK(form.forward({}).toTensor().equal(seeded));
    }
  }
}
