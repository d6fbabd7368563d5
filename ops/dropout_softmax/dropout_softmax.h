#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>

#include <optional>
#include <tuple>
#include <utility>

#include "common/check.h"
#include "common/counters.h"
#include "common/random.h"
#include "dropout_softmax/dropout_softmax_arguments.h"
#include "rowwise/row_statistics.h"
#include "rowwise/tensor_layout.h"

namespace warpfuse {

/// Output, statistics and rng of a forward.
using DropoutSoftmaxResult = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// The part of the contract that all backends share: these throw, and read no data.
void check_dropout_softmax(const char* op, const at::Tensor& self, int64_t dim, double dropout_p,
                           const std::optional<at::Tensor>& rng);
void check_dropout_softmax_backward(const char* op, const at::Tensor& grad_output,
                                    const at::Tensor& saved, const at::Tensor& statistics,
                                    const at::Tensor& rng, int64_t dim, double dropout_p,
                                    bool softmax_first);
void check_linear_dropout_softmax(const char* op, const at::Tensor& input, const at::Tensor& weight,
                                  const std::optional<at::Tensor>& bias, double dropout_p,
                                  const std::optional<at::Tensor>& rng);
void check_dropout_mask(const char* op, const at::Tensor& like, double dropout_p,
                        const at::Tensor& rng);

/// Of the row statistics: there are none where dropout comes first.
inline c10::SymDimVector statistics_sizes(const at::Tensor& self, int64_t dim, bool softmax_first) {
  return softmax_first ? statistics_sizes(self, dim) : c10::SymDimVector{0};
}

/// The forward on any backend, for checked arguments and a contiguous input, which may be the
/// output: calls launch(arguments) unless there are no elements. draw() gives fresh random numbers.
template <typename Draw, typename Launch>
DropoutSoftmaxResult run_dropout_softmax(const at::Tensor& input, at::Tensor output, int64_t dim,
                                         double dropout_p, bool softmax_first,
                                         const std::optional<at::Tensor>& rng, const Draw& draw,
                                         const Launch& launch) {
  const RowLayout layout = row_layout(input, dim);
  const auto options = input.options().dtype(statistics_dtype(input));
  const auto sizes = softmax_first ? at::DimVector{layout.rows(), 2} : at::DimVector{0};
  // The kernels of a dimension that is not the last take no statistics: they stay zeros.
  at::Tensor statistics = layout.inner == 1 ? at::empty(sizes, options) : at::zeros(sizes, options);
  at::Tensor rng_used = rng_to_return(input, rng);
  if (input.numel() > 0) {
    at::Tensor held;
    launch(DropoutSoftmaxArguments{input.const_data_ptr(), output.mutable_data_ptr(),
                                   softmax_first ? statistics.mutable_data_ptr() : nullptr,
                                   to_dtype(input.scalar_type()), layout, softmax_first,
                                   Dropout(dropout_p), rng_source(rng, held, draw),
                                   rng_used.mutable_data_ptr<int64_t>()});
  }
  return {std::move(output), std::move(statistics), std::move(rng_used)};
}

/// _linear_dropout_softmax on any backend, for checked arguments: at::linear, whose result then
/// becomes the output in place, so that there is no second tensor of its size.
template <typename Draw, typename Launch>
std::tuple<at::Tensor, at::Tensor> run_linear_dropout_softmax(
    const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
    double dropout_p, const std::optional<at::Tensor>& rng, const Draw& draw,
    const Launch& launch) {
  const at::Tensor logits = at::linear(input, weight, bias).contiguous();
  auto [output, statistics, rng_used] =
      run_dropout_softmax(logits, logits, -1, dropout_p, false, rng, draw, launch);
  return {std::move(output), std::move(rng_used)};
}

/// The backward alike.
template <typename Launch>
at::Tensor run_dropout_softmax_backward(Counter& calls, const at::Tensor& grad_output,
                                        const at::Tensor& saved, const at::Tensor& statistics,
                                        const at::Tensor& rng, int64_t dim, double dropout_p,
                                        bool softmax_first, const Launch& launch) {
  check_dropout_softmax_backward("_dropout_softmax_backward", grad_output, saved, statistics, rng,
                                 dim, dropout_p, softmax_first);
  calls.add();
  const at::Tensor g = grad_output.contiguous();
  const at::Tensor kept = saved.contiguous();
  const at::Tensor of_rows = statistics.contiguous();
  const at::Tensor state = rng.contiguous();
  at::Tensor grad_input = at::empty_like(kept);
  if (kept.numel() > 0) {
    launch(DropoutSoftmaxBackwardArguments{g.const_data_ptr(), kept.const_data_ptr(),
                                           softmax_first ? of_rows.const_data_ptr() : nullptr,
                                           grad_input.mutable_data_ptr(),
                                           to_dtype(kept.scalar_type()), row_layout(kept, dim),
                                           softmax_first, Dropout(dropout_p), source_of(state)});
  }
  return grad_input;
}

/// _dropout_mask alike.
template <typename Launch>
at::Tensor run_dropout_mask(Counter& calls, const at::Tensor& like, double dropout_p,
                            const at::Tensor& rng, const Launch& launch) {
  check_dropout_mask("_dropout_mask", like, dropout_p, rng);
  calls.add();
  const at::Tensor state = rng.contiguous();
  at::Tensor mask = at::empty(like.sizes(), like.options().dtype(at::kBool));
  if (mask.numel() > 0) {
    launch(DropoutMaskArguments{mask.mutable_data_ptr<bool>(), mask.numel(), Dropout(dropout_p),
                                source_of(state)});
  }
  return mask;
}

}  // namespace warpfuse
