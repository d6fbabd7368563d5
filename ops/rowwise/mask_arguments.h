#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string_view>

#include "rowwise/key_mask.h"

namespace warpfuse {

/// What hides keys, as the schemas of attention's operators give it.
struct MaskArguments {
  const std::optional<at::Tensor>& attn_mask;
  std::string_view causal;
  const std::optional<at::Tensor>& query_positions;
  const std::optional<at::Tensor>& key_lengths;
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
