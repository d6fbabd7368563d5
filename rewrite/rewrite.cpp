#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/passes/common_subexpression_elimination.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/passes/lower_tuples.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <warpfuse/rewrite.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "chain.h"
#include "deform.h"
#include "emit.h"
#include "passes.h"
#include "report.h"

namespace warpfuse {
namespace {

namespace jit = torch::jit;
using rewriting::Attributes;
using rewriting::Chain;
using rewriting::Facts;

void count_others(jit::Graph& graph, RewriteReport& report) {
  rewriting::for_each_node(graph.block(), [&](const jit::Node* node) {
    report.sdpa_calls += node->kind() == jit::aten::scaled_dot_product_attention ? 1 : 0;
    const std::string_view name = node->kind().toQualString();
    report.already_routed += name.starts_with("warpfuse::") ? 1 : 0;
  });
}

using ToldByNode = std::unordered_map<const jit::Node*, RewrittenSoftmax>;

// Of a module that has no tensors: the device that its literals are for.
c10::Device device_of(const jit::Module& module, const RewriteOptions& options) {
  for (const at::Tensor& tensor : module.parameters()) {
    return tensor.device();
  }
  for (const at::Tensor& tensor : module.buffers()) {
    return tensor.device();
  }
  const bool is_there = options.device && (options.device->is_cpu() || at::hasCUDA());
  return is_there ? *options.device : c10::Device(c10::kCPU);
}

// Routes grid_sample chains. What became of each, by a node that is in its place.
ToldByNode route_deformable(jit::Module& module, const Attributes& attributes,
                            const std::string& method, const std::shared_ptr<jit::Graph>& graph,
                            const std::vector<RewriteArgument>& arguments,
                            const RewriteOptions& options) {
  const rewriting::Writes writes(graph);
  Facts facts(attributes, *graph, writes, arguments);
  ToldByNode result;
  for (const rewriting::Deform& deform : rewriting::deformable_attentions(*graph, facts, writes)) {
    jit::Node* sampler = deform.samplers[0];
    RewrittenSoftmax entry =
        rewriting::told(method, sampler, emitted_operator(deform), deform.form, deform.note);
    jit::Node* place =
        deform.is_left ? sampler : emit_deform(module, *graph, deform, device_of(module, options));
    result.emplace(place, std::move(entry));
  }
  jit::EliminateDeadCode(graph);
  return result;
}

void rewrite_graph(jit::Module& module, const Attributes& attributes, const std::string& method,
                   const std::shared_ptr<jit::Graph>& graph, const RewriteOptions& options,
                   RewriteReport& report) {
  count_others(*graph, report);
  if (options.device) {
    report.retargeted_devices += rewriting::retarget(*graph, *options.device);
  }
  const auto found = options.arguments.find(method);
  const std::vector<RewriteArgument> arguments =
      found == options.arguments.end() ? std::vector<RewriteArgument>() : found->second;
  {
    const rewriting::Writes writes(graph);
    rewriting::remove_no_ops(*graph, Facts(attributes, *graph, writes, arguments));
  }
  const ToldByNode deformable =
      route_deformable(module, attributes, method, graph, arguments, options);
  rewriting::Writes writes(graph);
  Facts facts(attributes, *graph, writes, arguments);
  std::vector<jit::Node*> calls;
  rewriting::for_each_node(graph->block(), [&](jit::Node* node) {
    if (rewriting::is_softmax(node) || deformable.contains(node)) {
      calls.push_back(node);
    }
  });
  for (jit::Node* call : calls) {
    if (const auto told_before = deformable.find(call); told_before != deformable.end()) {
      report.softmaxes.push_back(told_before->second);
      continue;
    }
    const Chain chain = rewriting::walk_up(call, facts, writes, options.keep_nan);
    report.softmaxes.push_back(rewriting::told(method, chain));
    if (!chain.is_left) {
      rewriting::emit(*graph, chain, writes);
    }
  }
  jit::EliminateDeadCode(graph);
  jit::EliminateCommonSubexpression(graph);
}

jit::Module frozen(const jit::Module& module) {
  std::vector<std::string> methods;
  for (const jit::Method& method : module.get_methods()) {
    methods.push_back(method.name());
  }
  return jit::freeze(module, methods, /*optimize_numerics=*/false);
}

}  // namespace

RewriteReport rewrite(jit::Module& module, const RewriteOptions& options) {
  using namespace rewriting;
  for (const char* name :
       {kAttention, kSoftmax, kLogSoftmax, kLogprob, kLinear, kDeform, kDeformSoftmax}) {
    TORCH_CHECK(c10::Dispatcher::singleton().findSchema({name, ""}).has_value(),
                "rewrite: no library has registered ", name, "; load libwarpfuse.so before");
  }
  // Without the optimiser a method is inlined one call deep, and the rest of it is dropped.
  const jit::GraphOptimizerEnabledGuard optimizer(true);
  if (options.freeze) {
    module = frozen(module);
  }
  std::vector<std::pair<std::string, jit::GraphFunction*>> methods;
  for (const jit::Method& method : module.get_methods()) {
    const bool is_asked =
        options.methods.empty() ||
        std::ranges::find(options.methods, method.name()) != options.methods.end();
    if (is_asked) {
      methods.emplace_back(method.name(), &jit::toGraphFunction(method.function()));
      jit::Inline(*methods.back().second->graph());
      jit::LowerSimpleTuples(methods.back().second->graph());
    }
  }
  const Attributes attributes(module);
  RewriteReport report;
  for (const auto& [name, method] : methods) {
    rewrite_graph(module, attributes, name, method->graph(), options, report);
  }
  for (const auto& [name, method] : methods) {
    method->clear_optimized_graphs();
  }
  return report;
}

}  // namespace warpfuse
