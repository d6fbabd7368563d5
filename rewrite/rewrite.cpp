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
#include <iterator>
#include <sstream>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "chain.h"
#include "deform.h"
#include "passes.h"

namespace warpfuse {
namespace {

namespace jit = torch::jit;
using rewriting::Chain;
using rewriting::Facts;
using rewriting::Mask;

constexpr const char* kAttention = "warpfuse::scaled_masked_softmax";
constexpr const char* kSoftmax = "warpfuse::softmax";
constexpr const char* kLogSoftmax = "warpfuse::log_softmax";
constexpr const char* kLogprob = "warpfuse::fused_logprob";
constexpr const char* kLinear = "warpfuse::linear_dropout_softmax";

const char* emitted_operator(const Chain& chain) {
  if (chain.is_left) {
    return "";
  }
  if (chain.logprob) {
    return kLogprob;
  }
  if (chain.is_log) {
    return kLogSoftmax;
  }
  if (chain.linear != nullptr) {
    return kLinear;
  }
  return chain.is_attention ? kAttention : kSoftmax;
}

std::string mask_name(const Mask& mask) {
  std::string name;
  const auto add = [&](bool is_there, const char* what) {
    name += is_there ? (name.empty() ? "" : " + ") + std::string(what) : "";
  };
  add(mask.is_none(), "none");
  add(mask.is_causal, "causal");
  add(mask.positions != nullptr, "query positions");
  add(mask.kind == Mask::Kind::boolean, mask.fill ? "boolean, filled" : "boolean");
  add(mask.kind == Mask::Kind::additive, "additive");
  return name;
}

// The tensors of a mask as one.
jit::Value* mask_tensor(jit::Graph& graph, const Mask& mask) {
  jit::Value* result = nullptr;
  for (const Mask::Tensor& tensor : mask.tensors) {
    jit::Value* value =
        tensor.is_hidden ? graph.insert(c10::aten::logical_not, {tensor.value}) : tensor.value;
    if (result == nullptr) {
      result = value;
    } else if (mask.kind == Mask::Kind::boolean) {
      result = graph.insert(c10::aten::logical_and, {result, value});
    } else {
      result = graph.insert(c10::aten::add, {result, value});
    }
  }
  return result;
}

// The arguments of scaled_masked_softmax.
std::vector<jit::Value*> attention_arguments(jit::Graph& graph, const Chain& chain) {
  const auto none = [&] { return graph.insertConstant(c10::IValue()); };
  const Mask& mask = chain.mask;
  jit::Value* scores = chain.input;
  jit::Value* attn_mask = mask_tensor(graph, mask);
  if (chain.windows) {
    scores = rewriting::by_windows(graph, *chain.windows, scores, attn_mask);
  }
  if (attn_mask != nullptr && mask.may_broadcast) {
    const c10::ListTypePtr tensors = c10::ListType::ofTensors();
    jit::Node* list =
        graph.insertNode(graph.createList(tensors->getElementType(), {scores, attn_mask}));
    jit::Value* equal = graph.insert(c10::aten::broadcast_tensors, {list->output()});
    jit::Node* unpacked = graph.insertNode(graph.createListUnpack(equal, 2));
    scores = unpacked->output(0);
    attn_mask = unpacked->output(1);
  }
  return {scores,
          graph.insertConstant(chain.scale),
          attn_mask != nullptr ? attn_mask : none(),
          graph.insertConstant(mask.is_causal ? "upper_left" : "none"),
          mask.positions != nullptr ? mask.positions : none(),
          none(),
          graph.insertConstant(0),
          mask.fill ? graph.insertConstant(*mask.fill) : none()};
}

void emit(jit::Graph& graph, const Chain& chain) {
  if (chain.logprob) {
    rewriting::emit_logprob(graph, *chain.logprob);
    return;
  }
  const jit::WithInsertPoint at_softmax(chain.softmax);
  std::vector<jit::Value*> arguments;
  if (chain.is_attention) {
    arguments = attention_arguments(graph, chain);
  } else if (chain.linear != nullptr) {
    arguments = chain.linear->inputs().vec();
    arguments.push_back(graph.insertConstant(0.0));
    arguments.push_back(graph.insertConstant(false));
  } else {
    jit::Value* dtype = Facts::argument(chain.softmax, "dtype");
    const bool takes_dtype = dtype != nullptr && chain.output == chain.softmax->output();
    arguments = {chain.input, Facts::argument(chain.softmax, "dim"),
                 takes_dtype ? dtype : graph.insertConstant(c10::IValue())};
  }
  jit::Node* fused = graph.create(c10::Symbol::fromQualString(emitted_operator(chain)), arguments);
  fused->setSourceRange(chain.softmax->sourceRange());
  fused->setScope(chain.softmax->scope());
  graph.insertNode(fused);
  fused->output()->setType(c10::TensorType::get());
  jit::Value* result = fused->output();
  if (chain.windows) {
    const jit::Node* merge = chain.windows->merge;
    result = graph.insert(merge->kind(), {result, merge->input(1)});
  }
  chain.output->replaceAllUsesWith(result);
}

std::string module_of(const jit::Node* node) {
  std::string path;
  if (const auto stack = node->callstack()) {
    for (const auto& [function, range, instance] : (*stack)->vec()) {
      if (instance && !instance->instance_name().empty() && instance->instance_name() != "SELF") {
        path += (path.empty() ? "" : ".") + instance->instance_name();
      }
    }
  }
  return path;
}

// "file:line". A trace's range is Python's stack, innermost call first, as "file(line): function".
std::string source_of(const jit::Node* node) {
  jit::SourceRange range = node->sourceRange();
  if (const auto original = range.findSourceRangeThatGenerated()) {
    range = *original;
  }
  std::istringstream stack(range.text().str());
  for (std::string line; std::getline(stack, line);) {
    const size_t open = line.find('('), close = line.find("): ");
    if (open != std::string::npos && close != std::string::npos && open < close &&
        line.find("/torch/nn/functional.py") == std::string::npos) {
      return line.substr(0, open) + ":" + line.substr(open + 1, close - open - 1);
    }
  }
  const auto place = range.file_line_col();
  return place ? std::get<0>(*place) + ":" + std::to_string(std::get<1>(*place)) : "";
}

RewrittenSoftmax told(const std::string& method, const jit::Node* before, const char* after,
                      const std::vector<std::string>& form, const std::string& note) {
  RewrittenSoftmax result{.method = method,
                          .module = module_of(before),
                          .source = source_of(before),
                          .operator_before = before->kind().toQualString(),
                          .operator_after = after,
                          .form = {},
                          .mask = mask_name({}),
                          .note = note};
  for (const std::string& each : form) {
    result.form += (result.form.empty() ? "" : ", ") + each;
  }
  return result;
}

RewrittenSoftmax told(const std::string& method, const Chain& chain) {
  RewrittenSoftmax result =
      told(method, chain.softmax, emitted_operator(chain), chain.form, chain.note);
  result.mask = mask_name(chain.mask);
  if (chain.mask.may_hide_rows) {
    result.note += (result.note.empty() ? "" : "; ");
    result.note += "rows hidden throughout become 0";
  }
  return result;
}

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
ToldByNode route_deformable(jit::Module& module, const std::string& method,
                            const std::shared_ptr<jit::Graph>& graph,
                            const std::vector<RewriteArgument>& arguments,
                            const RewriteOptions& options) {
  const rewriting::Writes writes(graph);
  Facts facts(module, *graph, writes, arguments);
  ToldByNode result;
  for (const rewriting::Deform& deform : rewriting::deformable_attentions(*graph, facts, writes)) {
    jit::Node* sampler = deform.samplers[0];
    RewrittenSoftmax entry =
        told(method, sampler, emitted_operator(deform), deform.form, deform.note);
    jit::Node* place =
        deform.is_left ? sampler : emit_deform(module, *graph, deform, device_of(module, options));
    result.emplace(place, std::move(entry));
  }
  jit::EliminateDeadCode(graph);
  return result;
}

void rewrite_graph(jit::Module& module, const std::string& method,
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
    rewriting::remove_no_ops(*graph, Facts(module, *graph, writes, arguments));
  }
  const ToldByNode deformable = route_deformable(module, method, graph, arguments, options);
  const rewriting::Writes writes(graph);
  Facts facts(module, *graph, writes, arguments);
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
    report.softmaxes.push_back(told(method, chain));
    if (!chain.is_left) {
      emit(*graph, chain);
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

int64_t RewriteReport::routed() const {
  return std::ranges::count_if(
      softmaxes, [](const RewrittenSoftmax& each) { return !each.operator_after.empty(); });
}

std::vector<RewrittenSoftmax> RewriteReport::grid_sample_chains() const {
  std::vector<RewrittenSoftmax> chains;
  std::ranges::copy_if(softmaxes, std::back_inserter(chains), [](const RewrittenSoftmax& each) {
    return each.operator_before.starts_with("aten::grid_sampler");
  });
  return chains;
}

RewriteReport rewrite(jit::Module& module, const RewriteOptions& options) {
  for (const char* name : {kAttention, kSoftmax, kLogSoftmax, kLogprob, kLinear, rewriting::kDeform,
                           rewriting::kDeformSoftmax}) {
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
  RewriteReport report;
  for (const auto& [name, method] : methods) {
    rewrite_graph(module, name, method->graph(), options, report);
  }
  for (const auto& [name, method] : methods) {
    method->clear_optimized_graphs();
  }
  return report;
}

}  // namespace warpfuse
