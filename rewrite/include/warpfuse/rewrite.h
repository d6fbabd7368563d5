#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace warpfuse {

/// What the caller knows of a tensor argument.
struct RewriteArgument {
  /// Numbers, or names of which equal ones are equal sizes: {"B", "T"}.
  std::vector<std::string> sizes;
  std::optional<c10::ScalarType> dtype = {};
};

/// What rewrite() may do beside routing softmax calls.
struct RewriteOptions {
  /// Method names; empty: every method of the module itself.
  std::vector<std::string> methods = {};
  /// The first arguments of a method, by its name. More chains are proved with it.
  std::map<std::string, std::vector<RewriteArgument>> arguments = {};
  /// Replaces the device literals of the graphs, which a trace takes from the machine it ran on.
  std::optional<c10::Device> device = {};
  /// Rows that a mask of -inf hides throughout are NaN in ATen and 0 in the plugin. With this such
  /// a mask is left to ATen, unless every row is proved to see a key.
  bool keep_nan = false;
  /// Makes the attributes constants of the graphs first, as torch::jit::freeze does, and keeps
  /// every method. The module then stays on its device.
  bool freeze = false;
};

/// A softmax of the model, or a chain of grid_sample calls that a weighted sum joins, and what
/// became of it.
struct RewrittenSoftmax {
  std::string method;
  /// The submodule whose code it is, such as "transformer.h.0.attn"; empty: the module itself.
  std::string module;
  /// "file:line", where the archive still has it.
  std::string source;
  /// The operator before, such as "aten::softmax" or "aten::cross_entropy_loss"; of a chain
  /// "aten::grid_sampler".
  std::string operator_before;
  /// The plugin's operator; empty: it was left to ATen.
  std::string operator_after;
  /// What was matched, outermost first, such as "mul, add, softmax".
  std::string form;
  /// "none", "causal", "query positions", "boolean", "boolean, filled", "additive", or several of
  /// them as "causal + additive".
  std::string mask;
  /// Why it was left, or why the chain before it was matched no further; and "rows hidden
  /// throughout become 0" where that can be.
  std::string note;

  bool routed() const { return !operator_after.empty(); }
};

struct RewriteReport {
  /// In the order of the graphs. A softmax that a chain's operator computes is part of the chain.
  std::vector<RewrittenSoftmax> softmaxes;
  /// Calls of aten::scaled_dot_product_attention, which has no softmax to route.
  int64_t sdpa_calls = 0;
  /// Calls of the plugin's operators that were there before.
  int64_t already_routed = 0;
  /// Device literals replaced.
  int64_t retargeted_devices = 0;

  /// Of both kinds.
  int64_t routed() const;
  /// The entries that are chains of grid_sample.
  std::vector<RewrittenSoftmax> grid_sample_chains() const;
};

/// Routes the softmax calls of a TorchScript module to the plugin's operators, in place. Each call
/// is inlined and walked upwards through casts, masks and scales; the most fused operator that the
/// walk proves is emitted. Chains of grid_sample that are multi-scale deformable attention become
/// one operator; the sizes of their levels become buffers of the module. What is not proved stays
/// as it is, with the reason in the report. A second call changes nothing.
///
/// The module is in eval mode, and none of its methods has run. Arguments of a method share no
/// memory with one another. Throws c10::Error if the plugin is not loaded.
RewriteReport rewrite(torch::jit::Module& module, const RewriteOptions& options = {});

}  // namespace warpfuse
