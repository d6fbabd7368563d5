#include "runtime/load/graph_passes.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/subgraph_matcher.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/passes/subgraph_rewrite.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <algorithm>
#include <initializer_list>
#include <unordered_map>

#include "runtime/load/bundle.h"
#include "runtime/load/plugin.h"

namespace warpfuse::host {
namespace {

namespace jit = torch::jit;

// The cache is the last argument; the first is the module.
std::vector<jit::Value*> arguments_to_keep(jit::Graph& graph) {
  const at::ArrayRef<jit::Value*> inputs = graph.inputs();
  return inputs.size() < 3 ? std::vector<jit::Value*>()
                           : std::vector<jit::Value*>(inputs.begin() + 1, inputs.end() - 1);
}

void keep_arguments_of(const std::shared_ptr<jit::Graph>& graph) {
  // The alias analysis assumes that all arguments share one memory, as a caller might pass one
  // tensor twice; it knows that copies do not. So each argument is copied first, and copies that
  // nothing writes to are taken back.
  std::vector<jit::Node*> copies;
  const jit::WithInsertPoint at_start(graph->block()->nodes().front());
  for (jit::Value* argument : arguments_to_keep(*graph)) {
    if (argument->uses().empty()) {
      continue;
    }
    jit::Value* copy = graph->insert(c10::aten::clone, {argument});
    argument->replaceAllUsesAfterNodeWith(copy->node(), copy);
    copies.push_back(copy->node());
  }
  {
    const jit::AliasDb aliases(graph);
    std::erase_if(copies, [&](jit::Node* copy) { return aliases.hasWriters(copy->output()); });
  }
  for (jit::Node* copy : copies) {
    copy->output()->replaceAllUsesWith(copy->input(0));
    copy->destroy();
  }
}

// A layer of [B, T] tokens is a matmul of their rows, seen as [B, T] again.
constexpr const char* kGelu = R"(
graph(%bias, %x, %weight, %beta, %alpha, %sizes, %form):
  %matmul = aten::addmm(%bias, %x, %weight, %beta, %alpha)
  %layer = aten::view(%matmul, %sizes)
  %result = aten::gelu(%layer, %form)
  return (%result))";
constexpr const char* kFusedGelu = R"(
graph(%bias, %x, %weight, %beta, %alpha, %sizes, %form):
  %yes : bool = prim::Constant[value=1]()
  %matmul = aten::_addmm_activation(%bias, %x, %weight, %beta, %alpha, %yes)
  %result = aten::view(%matmul, %sizes)
  return (%result))";

constexpr const char* kResidual = R"(
graph(%bias, %x, %weight, %beta, %alpha, %sizes, %residual, %gamma):
  %matmul = aten::addmm(%bias, %x, %weight, %beta, %alpha)
  %layer = aten::view(%matmul, %sizes)
  %result = aten::add(%residual, %layer, %gamma)
  return (%result))";
constexpr const char* kFusedResidual = R"(
graph(%bias, %x, %weight, %beta, %alpha, %sizes, %residual, %gamma):
  %result = warpfuse_host::linear_add(%bias, %x, %weight, %sizes, %residual)
  return (%result))";

using Values = std::unordered_map<std::string, jit::Value*>;

// The constant that a value of the pattern stands for, or None.
c10::IValue constant(const jit::Match& match, const Values& values, const char* name) {
  return jit::toIValue(match.values_map.at(values.at(name))).value_or(c10::IValue());
}

bool is_tanh_form(const jit::Match& match, const Values& values) {
  const c10::IValue form = constant(match, values, "form");
  return form.isString() && form.toStringRef() == "tanh";
}

bool has_no_factors(const jit::Match& match, const Values& values) {
  return std::ranges::all_of(std::initializer_list{"beta", "alpha", "gamma"},
                             [&](const char* name) {
                               const c10::IValue factor = constant(match, values, name);
                               return factor.isScalar() && factor.toScalar().equal(1);
                             });
}

}  // namespace

void change_methods(jit::Module& module,
                    const std::function<void(std::shared_ptr<jit::Graph>)>& change) {
  // Without the optimiser a method is inlined one call deep, and the rest of it is dropped.
  const jit::GraphOptimizerEnabledGuard optimizer(true);
  std::vector<jit::GraphFunction*> methods;
  const auto add = [&](const char* name) {
    if (const auto method = module.find_method(name)) {
      methods.push_back(&jit::toGraphFunction(method->function()));
      jit::Inline(*methods.back()->graph());
    }
  };
  std::ranges::for_each(kLanguageModelMethods, add);
  add(kNextMethod);
  for (jit::GraphFunction* method : methods) {
    change(method->graph());
  }
  for (jit::GraphFunction* method : methods) {
    // Executable forms, made when another method was inlined that calls this one.
    method->clear_optimized_graphs();
  }
}

void keep_arguments(jit::Module& module) { change_methods(module, keep_arguments_of); }

void fuse_epilogues(jit::Module& module) {
  jit::SubgraphRewriter gelus, residuals;
  gelus.RegisterRewritePattern(kGelu, kFusedGelu);
  residuals.RegisterRewritePattern(kResidual, kFusedResidual);
  const bool fuses_residuals = is_registered("warpfuse_host::linear_add");
  change_methods(module, [&](std::shared_ptr<jit::Graph> graph) {
    gelus.runOnGraph(graph, is_tanh_form);
    if (fuses_residuals) {
      residuals.runOnGraph(graph, has_no_factors);
    }
  });
}

}  // namespace warpfuse::host
