#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <optional>
#include <tuple>
#include <utility>

#include "common/check.h"
#include "common/counters.h"
#include "common/random.h"
#include "rowwise/mask_arguments.h"
#include "rowwise/row_statistics.h"
#include "scaled_masked_softmax_dropout/scaled_masked_softmax_dropout_arguments.h"

namespace warpfuse {

/// Output, statistics and rng of a forward.
using MaskedSoftmaxDropoutResult = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// The part of the contract that all backends share: these throw, and read no data.
void check_masked_dropout(const char* op, const at::Tensor& scores, const MaskArguments& masks,
                          double dropout_p, const std::optional<at::Tensor>& rng);
void check_masked_dropout_backward(const char* op, const at::Tensor& grad_output,
                                   const at::Tensor& scores, const at::Tensor& statistics,
                                   const at::Tensor& rng, const MaskArguments& masks,
                                   double dropout_p);

/// The forward on any backend: checks, allocates, and calls launch(arguments) unless the scores are
/// empty. draw() gives fresh random numbers.
template <typename Draw, typename Launch>
MaskedSoftmaxDropoutResult run_masked_dropout(Counter& calls, const at::Tensor& scores,
                                              double scale, const MaskArguments& masks,
                                              double dropout_p,
                                              const std::optional<at::Tensor>& rng,
                                              const Draw& draw, const Launch& launch) {
  check_masked_dropout("_scaled_masked_softmax_dropout", scores, masks, dropout_p, rng);
  calls.add();
  const at::Tensor input = scores.contiguous();
  at::Tensor output = at::empty_like(input);
  at::Tensor statistics =
      at::empty_symint(statistics_sizes(input, -1), input.options().dtype(statistics_dtype(input)));
  at::Tensor rng_used = rng_to_return(input, rng);
  if (input.numel() > 0) {
    at::Tensor held;
    launch(MaskedSoftmaxDropoutArguments{
        input.const_data_ptr(), output.mutable_data_ptr(), statistics.mutable_data_ptr(),
        to_dtype(input.scalar_type()), statistics.size(0), scale, key_rules(input, masks),
        mask_view(input, masks), Dropout(dropout_p), rng_source(rng, held, draw),
        rng_used.mutable_data_ptr<int64_t>()});
  }
  return {std::move(output), std::move(statistics), std::move(rng_used)};
}

/// The backward alike.
template <typename Launch>
at::Tensor run_masked_dropout_backward(Counter& calls, const at::Tensor& grad_output,
                                       const at::Tensor& scores, const at::Tensor& statistics,
                                       const at::Tensor& rng, double scale,
                                       const MaskArguments& masks, double dropout_p,
                                       const Launch& launch) {
  check_masked_dropout_backward("_scaled_masked_softmax_dropout_backward", grad_output, scores,
                                statistics, rng, masks, dropout_p);
  calls.add();
  const at::Tensor g = grad_output.contiguous();
  const at::Tensor input = scores.contiguous();
  const at::Tensor of_rows = statistics.contiguous();
  const at::Tensor state = rng.contiguous();
  at::Tensor grad_scores = at::empty_like(input);
  if (input.numel() > 0) {
    launch(MaskedSoftmaxDropoutBackwardArguments{
        g.const_data_ptr(), input.const_data_ptr(), of_rows.const_data_ptr(),
        grad_scores.mutable_data_ptr(), to_dtype(input.scalar_type()), of_rows.size(0), scale,
        key_rules(input, masks), mask_view(input, masks), Dropout(dropout_p), source_of(state)});
  }
  return grad_scores;
}

}  // namespace warpfuse
