#include "runtime/method_graphs.h"

#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include "runtime/bundle.h"

namespace warpfuse::host {

namespace jit = torch::jit;

std::vector<jit::GraphFunction*> inlined_methods(jit::Module& module) {
  // Without the optimiser a method is inlined one call deep, and the rest of it is dropped.
  const jit::GraphOptimizerEnabledGuard optimizer(true);
  std::vector<jit::GraphFunction*> methods;
  for (const char* name : kLanguageModelMethods) {
    if (const auto method = module.find_method(name)) {
      methods.push_back(&jit::toGraphFunction(method->function()));
      jit::Inline(*methods.back()->graph());
    }
  }
  return methods;
}

void forget_runs(const std::vector<jit::GraphFunction*>& methods) {
  for (jit::GraphFunction* method : methods) {
    method->clear_optimized_graphs();
  }
}

}  // namespace warpfuse::host
