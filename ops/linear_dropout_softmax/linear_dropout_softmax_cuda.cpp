#include "common/random_cuda.h"
#include "common/registration.h"
#include "common/tf32.h"
#include "dropout_softmax/dropout_softmax.h"
#include "dropout_softmax/dropout_softmax_cuda.h"
#include "linear_dropout_softmax/linear_dropout_softmax_kernel.h"

namespace warpfuse {
namespace {

constexpr const char* kOp = "_linear_dropout_softmax";

Counter calls("linear_dropout_softmax.cuda");

using Result = std::tuple<at::Tensor, at::Tensor>;

// In one kernel, where there is one for these arguments.
std::optional<Result> in_one_kernel(const at::Tensor& input, const at::Tensor& weight,
                                    const std::optional<at::Tensor>& bias, double dropout_p,
                                    const std::optional<at::Tensor>& rng) {
  const bool rounds = input.scalar_type() != at::kFloat || matmul_rounds_to_tf32();
  if (input.numel() == 0 || !rounds || !weight.is_contiguous()) {
    return std::nullopt;
  }
  const c10::cuda::CUDAGuard guard(input.device());
  LinearDropoutSoftmaxArguments arguments{
      .input = input.is_contiguous() ? input.const_data_ptr() : nullptr,  // a copy is aligned
      .weight = weight.const_data_ptr(),
      .dtype = to_dtype(input.scalar_type()),
      .rows = input.numel() / input.size(-1),
      .columns = weight.size(0),
      .inner = weight.size(1),
      .dropout = Dropout(dropout_p)};
  if (!fits_linear_dropout_softmax_cuda(arguments)) {
    return std::nullopt;
  }
  const at::Tensor rows = input.contiguous();
  const bool has_bias = bias.has_value() && bias->defined();
  const at::Tensor of_columns = has_bias ? bias->contiguous() : at::Tensor();
  auto sizes = at::DimVector(input.sizes());
  sizes.back() = weight.size(0);
  at::Tensor output = at::empty(sizes, input.options());
  at::Tensor rng_used = rng_to_return(output, rng);
  at::Tensor held;
  arguments.input = rows.const_data_ptr();
  arguments.bias = has_bias ? of_columns.const_data_ptr() : nullptr;
  arguments.output = output.mutable_data_ptr();
  arguments.rng = rng_source(rng, held, [&] { return draw_rng_on_cuda(input.device()); });
  arguments.rng_used = rng_used.mutable_data_ptr<int64_t>();
  launch_on(kOp, input.device(), [&](cudaStream_t stream, Workspace& workspace) {
    return linear_dropout_softmax_cuda(arguments, workspace, stream);
  });
  return Result{std::move(output), std::move(rng_used)};
}

Result on_cuda(const at::Tensor& input, const at::Tensor& weight,
               const std::optional<at::Tensor>& bias, double dropout_p,
               const std::optional<at::Tensor>& rng) {
  check_linear_dropout_softmax(kOp, input, weight, bias, dropout_p, rng);
  calls.add();
  if (auto result = in_one_kernel(input, weight, bias, dropout_p, rng)) {
    return *std::move(result);
  }
  return run_linear_dropout_softmax(
      input, weight, bias, dropout_p, rng, [&] { return draw_rng_on_cuda(input.device()); },
      launch_forward(kOp, input.device()));
}

WARPFUSE_LIBRARY_IMPL(CUDA, m) { m.impl("_linear_dropout_softmax", on_cuda); }

}  // namespace
}  // namespace warpfuse
