#include "runtime/gelu_epilogue.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/subgraph_matcher.h>
#include <torch/csrc/jit/passes/subgraph_rewrite.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/method_graphs.h"

namespace warpfuse::host {
namespace {

namespace jit = torch::jit;

// A layer of [B, T] tokens is a product of their rows, seen as [B, T] again.
constexpr const char* kApart = R"(
graph(%bias, %x, %weight, %beta, %alpha, %sizes, %form):
  %product = aten::addmm(%bias, %x, %weight, %beta, %alpha)
  %layer = aten::view(%product, %sizes)
  %result = aten::gelu(%layer, %form)
  return (%result))";
constexpr const char* kJoined = R"(
graph(%bias, %x, %weight, %beta, %alpha, %sizes, %form):
  %yes : bool = prim::Constant[value=1]()
  %product = aten::_addmm_activation(%bias, %x, %weight, %beta, %alpha, %yes)
  %result = aten::view(%product, %sizes)
  return (%result))";

bool is_tanh_form(const jit::Match& match,
                  const std::unordered_map<std::string, jit::Value*>& values) {
  const auto form = jit::toIValue(match.values_map.at(values.at("form")));
  return form && form->isString() && form->toStringRef() == "tanh";
}

}  // namespace

void fuse_gelu(jit::Module& module) {
  jit::SubgraphRewriter rewriter;
  rewriter.RegisterRewritePattern(kApart, kJoined);
  const std::vector<jit::GraphFunction*> methods = inlined_methods(module);
  for (const jit::GraphFunction* method : methods) {
    std::shared_ptr<jit::Graph> graph = method->graph();
    rewriter.runOnGraph(graph, is_tanh_form);
  }
  forget_runs(methods);
}

}  // namespace warpfuse::host
