#include "linear_dropout_softmax/linear_dropout_softmax.h"

#include <ATen/ops/linear.h>

#include <tuple>

#include "common/check.h"
#include "common/random.h"
#include "common/tf32.h"
#include "core/calls.h"
#include "core/operator.h"
#include "dropout_softmax/dropout_softmax.h"  // the kernel behind at::linear
#include "rowwise/row_tensors.h"
#include "softmax/softmax.h"  // the same without dropout

namespace warpfuse {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

void check(const char* op, const at::Tensor& input, const at::Tensor& weight,
           const OptionalTensor& bias, double dropout_p) {
  check_floating(op, "input", input);
  WARPFUSE_CHECK(input.dim() >= 1, op, "input", "[..., in]", "0 dimensions");
  check_same_type(op, "weight", weight, input);
  WARPFUSE_CHECK(weight.dim() == 2 && weight.sym_size(1) == input.sym_size(-1), op, "weight",
                 c10::str("[out, in] with in = ", input.sym_size(-1)), weight.sym_sizes());
  if (bias.has_value() && bias->defined()) {
    check_same_type(op, "bias", *bias, input);
    WARPFUSE_CHECK(bias->dim() == 1 && bias->sym_size(0) == weight.sym_size(0), op, "bias",
                   c10::str("shape [out] = [", weight.sym_size(0), "]"), bias->sym_sizes());
  }
  check_dropout_p(op, dropout_p);
}

// --- operators --------------------------------------------------------------------------------

/// Output and rng.
using LinearResult = std::tuple<at::Tensor, at::Tensor>;

struct LinearDropoutSoftmax
    : Calls<LinearDropoutSoftmax,
            LinearResult(const at::Tensor&, const at::Tensor&, const OptionalTensor&, double,
                         const OptionalTensor&, bool)> {
  static constexpr const char* kName = "_linear_dropout_softmax";

  template <typename Backend>
  static LinearResult run(const at::Tensor& input, const at::Tensor& weight,
                          const OptionalTensor& bias, double dropout_p, const OptionalTensor& rng,
                          [[maybe_unused]] bool allow_split_float32) {  // by CUDA alone
    check(kName, input, weight, bias, dropout_p);
    check_rng(kName, rng, input);
    const bool draws = dropout_p > 0 || rng.has_value();
    const auto rng_of = [&](const at::Tensor& output) {
      return draws ? rng_to_return<Backend>(output, rng)
                   : Backend::empty({0}, output.options().dtype(at::kLong));
    };
    auto sizes = c10::SymDimVector(input.sym_sizes());
    sizes.back() = weight.sym_size(0);
#ifdef WARPFUSE_WITH_CUDA
    if constexpr (Backend::kKey == c10::DispatchKey::CUDA) {
      if (auto arguments = fused_arguments(input, weight, dropout_p, allow_split_float32)) {
        at::Tensor output = Backend::empty(sizes, input.options());
        at::Tensor rng_used = rng_of(output);
        if (Backend::computes(output)) {
          const at::Tensor rows = input.contiguous();
          const bool has_bias = bias.has_value() && bias->defined();
          const at::Tensor columns = has_bias ? bias->contiguous() : at::Tensor();
          at::Tensor held;
          arguments->input = rows.const_data_ptr();
          arguments->bias = has_bias ? columns.const_data_ptr() : nullptr;
          arguments->output = output.mutable_data_ptr();
          if (draws) {
            arguments->rng = rng_source(rng, held, input.device());
            arguments->rng_used = rng_used.mutable_data_ptr<int64_t>();
          }
          Backend::launch(output, *arguments);
        }
        return {std::move(output), std::move(rng_used)};
      }
    }
#endif
    // The result of at::linear becomes the output in place: there is no second tensor of its size.
    at::Tensor output = Backend::kKey == c10::DispatchKey::Meta
                            ? Backend::empty(sizes, input.options())
                            : at::linear(input, weight, bias).contiguous();
    at::Tensor rng_used = rng_of(output);
    if (Backend::computes(output)) {
      const void* const logits = output.const_data_ptr();
      void* const result = output.mutable_data_ptr();
      const DType dtype = to_dtype(output.scalar_type());
      const RowLayout layout = row_layout(output, -1);
      if (draws) {
        at::Tensor held;
        Backend::launch(output, DropoutSoftmaxArguments{logits, result, nullptr, dtype, layout,
                                                        false, Dropout(dropout_p),
                                                        rng_source(rng, held, output.device()),
                                                        rng_used.mutable_data_ptr<int64_t>()});
      } else {
        Backend::launch(output, SoftmaxArguments{logits, result, dtype, layout, false});
      }
    }
    return {std::move(output), std::move(rng_used)};
  }

#ifdef WARPFUSE_WITH_CUDA
 private:
  // The arguments of the kernel that does all, as far as fits_linear_dropout_softmax_cuda() reads
  // them, where there is one.
  static std::optional<LinearDropoutSoftmaxArguments> fused_arguments(const at::Tensor& input,
                                                                      const at::Tensor& weight,
                                                                      double dropout_p,
                                                                      bool allow_split_float32) {
    const bool exact = input.scalar_type() == at::kFloat && !matmul_rounds_to_tf32();
    if (input.numel() == 0 || (exact && !allow_split_float32) || !weight.is_contiguous()) {
      return std::nullopt;
    }
    const LinearDropoutSoftmaxArguments arguments{
        .input = input.is_contiguous() ? input.const_data_ptr() : nullptr,  // a copy is aligned
        .weight = weight.const_data_ptr(),
        .dtype = to_dtype(input.scalar_type()),
        .split = exact,
        .rows = input.numel() / input.size(-1),
        .columns = weight.size(0),
        .inner = weight.size(1),
        .dropout = Dropout(dropout_p)};
    const c10::cuda::CUDAGuard guard(input.device());
    return fits_linear_dropout_softmax_cuda(arguments) ? std::optional(arguments) : std::nullopt;
  }
#endif
};

WARPFUSE_OPERATORS(m) { register_operator<LinearDropoutSoftmax>(m); }

// --- the public operator, on every backend ----------------------------------------------------

// Its part has a gradient. In inference that draws nothing.
at::Tensor linear_dropout_softmax(const at::Tensor& input, const at::Tensor& weight,
                                  const OptionalTensor& bias, double dropout_p, bool training,
                                  bool allow_split_float32) {
  check("linear_dropout_softmax", input, weight, bias, dropout_p);
  return std::get<0>(LinearDropoutSoftmax::call(input, weight, bias, training ? dropout_p : 0.0,
                                                std::nullopt, allow_split_float32));
}

WARPFUSE_LIBRARY_IMPL(CompositeImplicitAutograd, m) {
  m.impl("linear_dropout_softmax", TORCH_FN(linear_dropout_softmax));
}

// Under vmap too: its part knows what vmap's randomness means.
WARPFUSE_LIBRARY_IMPL(FuncTorchVmapMode, m) {
  m.impl("linear_dropout_softmax", TORCH_FN(linear_dropout_softmax));
}

}  // namespace
}  // namespace warpfuse
