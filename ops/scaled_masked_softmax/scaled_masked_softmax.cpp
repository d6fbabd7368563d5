#include "scaled_masked_softmax/scaled_masked_softmax.h"

#include <tuple>

#include "attention_mask/mask_arguments.h"
#include "common/check.h"
#include "common/parallel_rows.h"
#include "common/random.h"
#include "core/calls.h"
#include "core/operator.h"
#include "rowwise/cpu/limits.h"
#include "rowwise/row_tensors.h"

namespace warpfuse {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

// scores are checked.
MaskedRows masked_rows(const at::Tensor& scores, double scale, const MaskArguments& masks) {
  return {to_dtype(scores.scalar_type()), scores.numel() / scores.size(-1), scale,
          key_rules(scores, masks), mask_view(scores, masks)};
}

// The scores as kernels read them.
InputRows score_rows(const at::Tensor& scores, const MaskedRows& rows, const at::Tensor& output) {
  const int64_t last = scores.dim() - 1;
  const bool chunk_takes = !rows.mask.fills && rows.rules.fits_in_32_bits(rows.rows);
  return chunk_takes ? input_rows(scores, last, output)
                     : InputRows{contiguous_in(scores, last, output)};
}

// --- operators --------------------------------------------------------------------------------

struct MaskedSoftmax
    : Calls<MaskedSoftmax, at::Tensor(const at::Tensor&, double, const MaskArguments&)> {
  static constexpr const char* kName = "scaled_masked_softmax";

  template <typename Backend>
  static at::Tensor run(const at::Tensor& scores, double scale, const MaskArguments& masks) {
    check_masks(kName, scores, masks);
    at::Tensor output = Backend::empty(scores.sym_sizes(), scores.options());
    if (Backend::computes(scores)) {
      const MaskedRows rows = masked_rows(scores, scale, masks);
      const auto [x, gap] = score_rows(scores, rows, output);
      Backend::launch(
          scores, MaskedSoftmaxArguments{rows, x.const_data_ptr(), output.mutable_data_ptr(), gap});
    }
    return output;
  }
};

struct MaskedSoftmaxBackward {
  static constexpr const char* kName = "_scaled_masked_softmax_backward";

  template <typename Backend>
  static at::Tensor run(const at::Tensor& grad_output, const at::Tensor& output, double scale,
                        const MaskArguments& masks) {
    check_masks(kName, output, masks);
    check_alike(kName, "grad_output", grad_output, output);
    at::Tensor grad_scores = Backend::empty(output.sym_sizes(), output.options());
    if (Backend::computes(output)) {
      const auto [g, y] = contiguous_in(grad_output, output, output.dim() - 1, grad_scores);
      Backend::launch(output, MaskedSoftmaxBackwardArguments{masked_rows(y, scale, masks),
                                                             g.const_data_ptr(), y.const_data_ptr(),
                                                             grad_scores.mutable_data_ptr()});
    }
    return grad_scores;
  }
};

/// Output, statistics and rng.
using MaskedDropoutResult = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

struct MaskedDropoutForward
    : Calls<MaskedDropoutForward,
            MaskedDropoutResult(const at::Tensor&, double, const MaskArguments&, double,
                                const OptionalTensor&)> {
  static constexpr const char* kName = "_scaled_masked_softmax_dropout";

  template <typename Backend>
  static MaskedDropoutResult run(const at::Tensor& scores, double scale, const MaskArguments& masks,
                                 double dropout_p, const OptionalTensor& rng) {
    check_masks(kName, scores, masks);
    check_dropout_p(kName, dropout_p);
    check_rng(kName, rng, scores);
    at::Tensor output = Backend::empty(scores.sym_sizes(), scores.options());
    at::Tensor statistics = Backend::empty(statistics_sizes(scores, -1),
                                           scores.options().dtype(statistics_dtype(scores)));
    at::Tensor rng_used = rng_to_return<Backend>(scores, rng);
    if (Backend::computes(scores)) {
      const at::Tensor x = contiguous_in(scores, scores.dim() - 1, output);
      at::Tensor held;
      Backend::launch(
          scores, MaskedSoftmaxDropoutArguments{
                      masked_rows(x, scale, masks), x.const_data_ptr(), output.mutable_data_ptr(),
                      statistics.mutable_data_ptr(), Dropout(dropout_p),
                      rng_source(rng, held, x.device()), rng_used.mutable_data_ptr<int64_t>()});
    }
    return {std::move(output), std::move(statistics), std::move(rng_used)};
  }
};

struct MaskedDropoutBackward {
  static constexpr const char* kName = "_scaled_masked_softmax_dropout_backward";

  template <typename Backend>
  static at::Tensor run(const at::Tensor& grad_output, const at::Tensor& scores,
                        const at::Tensor& statistics, const at::Tensor& rng, double scale,
                        const MaskArguments& masks, double dropout_p) {
    check_masks(kName, scores, masks);
    check_alike(kName, "grad_output", grad_output, scores);
    check_statistics(kName, statistics, scores, -1);
    check_dropout_p(kName, dropout_p);
    check_rng(kName, rng, scores);
    at::Tensor grad_scores = Backend::empty(scores.sym_sizes(), scores.options());
    if (Backend::computes(scores)) {
      const auto [g, x] = contiguous_in(grad_output, scores, scores.dim() - 1, grad_scores);
      const at::Tensor row_statistics = statistics.contiguous();
      const at::Tensor state = rng.contiguous();
      Backend::launch(scores,
                      MaskedSoftmaxDropoutBackwardArguments{
                          masked_rows(x, scale, masks), g.const_data_ptr(), x.const_data_ptr(),
                          row_statistics.const_data_ptr(), grad_scores.mutable_data_ptr(),
                          Dropout(dropout_p), rng_source(state)});
    }
    return grad_scores;
  }
};

WARPFUSE_OPERATORS(m) {
  register_operator<MaskedSoftmax>(m);
  register_operator<MaskedSoftmaxBackward>(m);
  register_operator<MaskedDropoutForward>(m);
  register_operator<MaskedDropoutBackward>(m);
}

// --- the public operator with dropout, on every backend ---------------------------------------

// It consists of others, each with its gradient. Autocast keeps the scores' dtype.
at::Tensor softmax_and_dropout(const at::Tensor& scores, double scale, const MaskArguments& masks,
                               double dropout_p, bool training) {
  constexpr const char* kOp = "scaled_masked_softmax_dropout";
  check_masks(kOp, scores, masks);
  check_dropout_p(kOp, dropout_p);
  return training && dropout_p > 0 ? std::get<0>(MaskedDropoutForward::call(
                                         scores, scale, masks, dropout_p, std::nullopt))
                                   : MaskedSoftmax::call(scores, scale, masks);
}

WARPFUSE_LIBRARY_IMPL(CompositeImplicitAutograd, m) {
  m.impl("scaled_masked_softmax_dropout", TORCH_FN(kernel_of<&softmax_and_dropout>));
}

// Under vmap too: its parts know what vmap's randomness means.
WARPFUSE_LIBRARY_IMPL(FuncTorchVmapMode, m) {
  m.impl("scaled_masked_softmax_dropout", TORCH_FN(kernel_of<&softmax_and_dropout>));
}

// --- the CPU ----------------------------------------------------------------------------------

Counter contiguous_masks("mask.contiguous");  // read in place
Counter strided_masks("mask.strided");        // each row is copied first
Counter masked_row_branch("cpu.masked_rows");
Counter masked_transposed_branch("cpu.masked_transposed");
Counter streamed_masked("streamed.scaled_masked_softmax");

template <typename Arguments>
void run_rows(const Arguments& arguments, const void* result) {
  if (arguments.mask.kind != MaskKind::none) {
    (arguments.mask.key_stride == 1 ? contiguous_masks : strided_masks).add();
  }
  const int64_t keys = arguments.rules.keys;
  (is_transposed(arguments) ? masked_transposed_branch : masked_row_branch).add();
  if (is_streamed(arguments.rows, keys * element_bytes(arguments.dtype), result)) {
    streamed_masked.add();
  }
  parallel_uneven_rows(arguments.rows, keys,
                       [&](int64_t begin, int64_t end) { masked_rows_cpu(arguments, begin, end); });
}

}  // namespace

void launch_cpu(const MaskedSoftmaxArguments& arguments) { run_rows(arguments, arguments.output); }

void launch_cpu(const MaskedSoftmaxBackwardArguments& arguments) {
  run_rows(arguments, arguments.grad_scores);
}

void launch_cpu(const MaskedSoftmaxDropoutArguments& arguments) {
  arguments.rng.get().store(arguments.rng_used);
  run_rows(arguments, arguments.output);
}

void launch_cpu(const MaskedSoftmaxDropoutBackwardArguments& arguments) {
  run_rows(arguments, arguments.grad_scores);
}

}  // namespace warpfuse
