#include "runtime/load/graph_passes.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <algorithm>
#include <vector>

#include "runtime/load/bundle.h"

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

}  // namespace warpfuse::host
