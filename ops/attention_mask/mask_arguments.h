#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "rowwise/key_mask.h"

namespace warpfuse {

/// The arguments of attention's operators that hide keys. Undefined tensors count as absent.
struct MaskArguments {
  using OptionalTensor = std::optional<at::Tensor>;

  MaskArguments(OptionalTensor attn_mask, std::string_view causal, OptionalTensor query_positions,
                OptionalTensor key_lengths, int64_t window, std::optional<double> masked_value);

  // In a schema they are six arguments (core/calls.h).
  using Fields = std::tuple<const OptionalTensor&, c10::string_view, const OptionalTensor&,
                            const OptionalTensor&, int64_t, std::optional<double>>;
  Fields fields() const;

  OptionalTensor attn_mask;  // broadcasts to the scores
  std::string causal;
  OptionalTensor query_positions;  // [B, Tq]
  OptionalTensor key_lengths;      // [B]
  int64_t window;
  std::optional<double> masked_value;
};

/// Throws unless scores and masks are as the schema wants them. Reads no data, so that it serves
/// Meta and CUDA too.
void check_masks(const char* op, const at::Tensor& scores, const MaskArguments& masks);

/// The rules and the mask as kernels take them, for checked arguments. They point into the tensors
/// of `masks`.
KeyRules key_rules(const at::Tensor& scores, const MaskArguments& masks);
MaskView mask_view(const at::Tensor& scores, const MaskArguments& masks);

}  // namespace warpfuse
