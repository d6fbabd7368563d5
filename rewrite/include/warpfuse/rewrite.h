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

/// What the caller knows about a tensor argument.
struct RewriteArgument {
  /// Numbers, or names; equal names mean equal sizes: {"B", "T"}.
  std::vector<std::string> sizes;
  std::optional<c10::ScalarType> dtype = {};
};

/// What rewrite() may do besides routing softmax calls.
struct RewriteOptions {
  /// Method names; empty: every method of the module itself.
  std::vector<std::string> methods = {};
  /// The first arguments of a method, by its name. They allow more proofs.
  std::map<std::string, std::vector<RewriteArgument>> arguments = {};
  /// Replaces the device literals of the graphs, which a trace takes from the machine it ran on.
  std::optional<c10::Device> device = {};
  /// Rows that are fully hidden by a mask of -inf are NaN in ATen and 0 in the plugin. With this
  /// option such a mask is left to ATen, unless every row is proved to see a key.
  bool keep_nan = false;
  /// First makes the attributes constants of the graphs, as torch::jit::freeze does, but keeps
  /// every method. The module then stays on its device.
  bool freeze = false;
};

/// A softmax of the model, or a chain of grid_sample calls that a weighted sum joins, and what
/// happened to it.
struct RewrittenSoftmax {
  std::string method;
  /// The submodule that contains it, such as "transformer.h.0.attn"; empty: the module itself.
  std::string module;
  /// "file:line", if the archive still has it.
  std::string source;
  /// The original operator, such as "aten::softmax" or "aten::cross_entropy_loss"; for a chain,
  /// "aten::grid_sampler".
  std::string operator_before;
  /// The plugin's operator; empty if it was left to ATen.
  std::string operator_after;
  /// What was matched, outermost first, such as "mul, add, softmax".
  std::string form;
  /// "none", "causal", "query positions", "boolean", "boolean, filled", "additive", or several,
  /// such as "causal + additive".
  std::string mask;
  /// Why it was left, or why matching stopped before it; and "rows hidden throughout become 0"
  /// if that can happen.
  std::string note;

  bool routed() const { return !operator_after.empty(); }
};

struct RewriteReport {
  /// In the order of the graphs. A softmax that a chain's operator computes is part of the chain.
  std::vector<RewrittenSoftmax> softmaxes;
  /// Calls of aten::scaled_dot_product_attention, which has no softmax to route.
  int64_t sdpa_calls = 0;
  /// Calls of the plugin's operators that were already there.
  int64_t already_routed = 0;
  /// Device literals replaced.
  int64_t retargeted_devices = 0;

  /// Routed softmax calls and chains.
  int64_t routed() const;
  /// The entries that are chains of grid_sample.
  std::vector<RewrittenSoftmax> grid_sample_chains() const;
};

/// Routes the softmax calls of a TorchScript module to the plugin's operators, in place. Each call
/// is inlined and walked upwards through casts, masks and scales; the most fused operator that the
/// walk proves is emitted. Chains of grid_sample that are multi-scale deformable attention become
/// one operator; the sizes of their levels become buffers of the module. Anything that is not
/// proved stays as it is, with the reason in the report. A second call changes nothing.
///
/// The module must be in eval mode, and none of its methods may have run. Arguments of a method
/// must not share memory with one another. Throws c10::Error if the plugin is not loaded.
RewriteReport rewrite(torch::jit::Module& module, const RewriteOptions& options = {});

}  // namespace warpfuse
