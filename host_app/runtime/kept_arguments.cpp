#include "runtime/kept_arguments.h"

#include <torch/csrc/jit/ir/alias_analysis.h>

#include <vector>

#include "runtime/method_graphs.h"

namespace warpfuse::host {
namespace {

namespace jit = torch::jit;

// The cache is the last argument; the first is the module.
std::vector<jit::Value*> arguments_to_keep(jit::Graph& graph) {
  const at::ArrayRef<jit::Value*> inputs = graph.inputs();
  return inputs.size() < 3 ? std::vector<jit::Value*>()
                           : std::vector<jit::Value*>(inputs.begin() + 1, inputs.end() - 1);
}

void keep_arguments(jit::Graph& graph) {
  // The analysis takes all arguments for one memory, as a caller might pass one tensor twice. Of
  // copies it knows that they are not.
  std::vector<jit::Node*> copies;
  const jit::WithInsertPoint at_start(graph.block()->nodes().front());
  for (jit::Value* argument : arguments_to_keep(graph)) {
    if (argument->uses().empty()) {
      continue;
    }
    jit::Value* copy = graph.insert(c10::aten::clone, {argument});
    argument->replaceAllUsesAfterNodeWith(copy->node(), copy);
    copies.push_back(copy->node());
  }
  std::vector<jit::Node*> needless;
  {
    const jit::AliasDb aliases(graph.shared_from_this());
    for (jit::Node* copy : copies) {
      if (!aliases.hasWriters(copy->output())) {
        needless.push_back(copy);
      }
    }
  }
  for (jit::Node* copy : needless) {
    copy->output()->replaceAllUsesWith(copy->input(0));
    copy->destroy();
  }
}

}  // namespace

void keep_arguments(jit::Module& module) {
  const std::vector<jit::GraphFunction*> methods = inlined_methods(module);
  for (jit::GraphFunction* method : methods) {
    keep_arguments(*method->graph());
  }
  forget_runs(methods);
}

}  // namespace warpfuse::host
