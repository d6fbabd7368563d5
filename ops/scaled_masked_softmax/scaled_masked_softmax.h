#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include "common/check.h"
#include "common/counters.h"
#include "rowwise/mask_arguments.h"
#include "scaled_masked_softmax/scaled_masked_softmax_arguments.h"

namespace warpfuse {

/// The forward on any backend: checks, allocates, and calls launch(arguments) unless the scores are
/// empty.
template <typename Launch>
at::Tensor run_masked_softmax(Counter& calls, const at::Tensor& scores, double scale,
                              const MaskArguments& masks, const Launch& launch) {
  check_masks("scaled_masked_softmax", scores, masks);
  calls.add();
  const at::Tensor input = scores.contiguous();
  at::Tensor output = at::empty_like(input);
  if (input.numel() > 0) {
    launch(MaskedSoftmaxArguments{input.const_data_ptr(), output.mutable_data_ptr(),
                                  to_dtype(input.scalar_type()), input.numel() / input.size(-1),
                                  scale, key_rules(input, masks), mask_view(input, masks)});
  }
  return output;
}

/// The backward alike.
template <typename Launch>
at::Tensor run_masked_softmax_backward(Counter& calls, const at::Tensor& grad_output,
                                       const at::Tensor& output, double scale,
                                       const MaskArguments& masks, const Launch& launch) {
  constexpr const char* kOp = "_scaled_masked_softmax_backward";
  check_masks(kOp, output, masks);
  check_alike(kOp, "grad_output", grad_output, output);
  calls.add();
  const at::Tensor g = grad_output.contiguous();
  const at::Tensor y = output.contiguous();
  at::Tensor grad_scores = at::empty_like(y);
  if (y.numel() > 0) {
    launch(MaskedSoftmaxBackwardArguments{g.const_data_ptr(), y.const_data_ptr(),
                                          grad_scores.mutable_data_ptr(), to_dtype(y.scalar_type()),
                                          y.numel() / y.size(-1), scale, key_rules(y, masks),
                                          mask_view(y, masks)});
  }
  return grad_scores;
}

}  // namespace warpfuse
