#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/subgraph_matcher.h>
#include <torch/csrc/jit/passes/subgraph_rewrite.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string>
#include <unordered_map>

#include "runtime/load/graph_passes.h"

namespace warpfuse::host {
namespace {

namespace jit = torch::jit;

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

void fuse_epilogues(jit::Module& module) {
  jit::SubgraphRewriter gelus, residuals;
  gelus.RegisterRewritePattern(kGelu, kFusedGelu);
  residuals.RegisterRewritePattern(kResidual, kFusedResidual);
  const bool fuses_residuals =
      c10::Dispatcher::singleton().findSchema({"warpfuse_host::linear_add", ""}).has_value();
  change_methods(module, [&](std::shared_ptr<jit::Graph> graph) {
    gelus.runOnGraph(graph, is_tanh_form);
    if (fuses_residuals) {
      residuals.runOnGraph(graph, has_no_factors);
    }
  });
}

}  // namespace warpfuse::host
