#include "skinny_linear/linear_inputs.h"

#include <ATen/ops/_addmm_activation.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rms_norm.h>

#include "common/check.h"

#ifdef WARPFUSE_WITH_CUDA
#include <c10/cuda/CUDAGuard.h>
#endif

namespace warpfuse {
namespace {

// A vector [size] like the input; absent ones are right.
void check_vector(const LinearInputs& inputs, const char* argument, const at::Tensor& vector,
                  const c10::SymInt& size) {
  if (!vector.defined()) {
    return;
  }
  check_same_type(inputs.op, argument, vector, inputs.input);
  check_shape(inputs.op, argument, vector, {size});
}

at::Tensor dense(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.contiguous() : tensor;
}

const void* data_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}

}  // namespace

void LinearInputs::check() const {
  check_floating(op, "input", input);
  WARPFUSE_CHECK(input.scalar_type() != at::kDouble, op, "input", "float32, float16 or bfloat16",
                 input.scalar_type());
  WARPFUSE_CHECK(input.dim() >= 1, op, "input", "[.., in]", "0 dimensions");
  check_same_type(op, "weight", weight, input);
  WARPFUSE_CHECK(weight.dim() == 2 && weight.sym_size(1) == input.sym_size(-1), op, "weight",
                 c10::str("[out, in] with in = ", input.sym_size(-1)), weight.sym_sizes());
  check_vector(*this, "bias", bias, weight.sym_size(0));
  check_vector(*this, "norm_weight", norm_weight, input.sym_size(-1));
  check_vector(*this, "norm_bias", norm_bias, input.sym_size(-1));
  WARPFUSE_CHECK(norm_weight.defined() || !norm_bias.defined(), op, "norm_bias",
                 "none without a norm_weight", "a tensor");
  WARPFUSE_CHECK(norm != Norm::rms || !norm_bias.defined(), op, "norm_bias", "none for an RMS norm",
                 "a tensor");
  WARPFUSE_CHECK(epsilon >= 0, op, "eps", "a number not below 0", epsilon);
  if (residual.defined()) {
    check_same_type(op, "residual", residual, input);
    check_shape(op, "residual", residual, output_sizes());
  }
}

c10::SymDimVector LinearInputs::output_sizes() const {
  c10::SymDimVector sizes(input.sym_sizes());
  sizes.back() = weight.sym_size(0);
  return sizes;
}

void LinearInputs::normalise() {
  if (norm == Norm::layer) {
    input = at::layer_norm(input, {input.size(-1)}, norm_weight, norm_bias, epsilon);
  } else if (norm == Norm::rms) {
    input = at::rms_norm(input, {input.size(-1)}, norm_weight, epsilon);
  }
  norm = Norm::none;
  norm_weight = norm_bias = at::Tensor();
}

at::Tensor LinearInputs::by_aten() {
  normalise();
  const at::Tensor& x = input;
  // cuBLASLt's epilogue; on the CPU it is GELU without tanh.
  if (activation == Activation::gelu_tanh && x.is_cuda() && x.numel() > 0 && bias.defined()) {
    const at::Tensor rows = x.reshape({-1, x.size(-1)});
    const at::Tensor output = at::_addmm_activation(bias, rows, weight.t(), 1, 1, true);
    return output.view(C10_AS_INTARRAYREF_SLOW(output_sizes()));
  }
  at::Tensor output = at::linear(x, weight, bias);
  if (activation != Activation::none) {
    output = at::gelu(output, activation == Activation::gelu ? "none" : "tanh");
  }
  return residual.defined() ? output.add_(residual) : output;
}

std::optional<SkinnyLinearArguments> LinearInputs::few_rows() {
  const int64_t columns = input.size(-1);
  const bool takes_more = input.is_cuda() && input.scalar_type() != at::kFloat;
  const int64_t max_rows = takes_more ? kMaxTiledRows : kMaxSkinnyRows;
  if (input.numel() == 0 || input.numel() / columns > max_rows || weight.stride(1) != 1) {
    return std::nullopt;
  }
  const auto arguments = [&] {
    for (at::Tensor* tensor : {&input, &bias, &norm_weight, &norm_bias, &residual}) {
      *tensor = dense(*tensor);
    }
    return SkinnyLinearArguments{.input = input.const_data_ptr(),
                                 .norm_weight = data_of(norm_weight),
                                 .norm_bias = data_of(norm_bias),
                                 .weight = weight.const_data_ptr(),
                                 .bias = data_of(bias),
                                 .residual = data_of(residual),
                                 .output = nullptr,
                                 .tokens = tokens,
                                 .dtype = to_dtype(input.scalar_type()),
                                 .norm = norm,
                                 .activation = activation,
                                 .epsilon = static_cast<float>(epsilon),
                                 .rows = input.numel() / columns,
                                 .columns = columns,
                                 .outputs = weight.size(0),
                                 .weight_stride = weight.stride(0)};
  };
#ifdef WARPFUSE_WITH_CUDA
  if (input.is_cuda()) {
    const c10::cuda::CUDAGuard guard(input.device());  // which GPU the kernels must fit
    const auto fitting = [&] {
      const SkinnyLinearArguments found = arguments();
      return fits_skinny_linear_cuda(found) ? std::optional(found) : std::nullopt;
    };
    const auto with_norm = fitting();
    if (with_norm.has_value() || norm == Norm::none) {
      return with_norm;
    }
    normalise();
    return fitting();
  }
#endif
  return arguments();
}

Norm norm_named(const char* op, std::string_view name) {
  WARPFUSE_CHECK(name == "layer" || name == "rms", op, "norm", "'layer' or 'rms'",
                 c10::str("'", name, "'"));
  return name == "layer" ? Norm::layer : Norm::rms;
}

Activation activation_named(const char* op, std::string_view name) {
  WARPFUSE_CHECK(name == "none" || name == "gelu" || name == "gelu_tanh", op, "activation",
                 "'none', 'gelu' or 'gelu_tanh'", c10::str("'", name, "'"));
  return name == "none" ? Activation::none
                        : (name == "gelu" ? Activation::gelu : Activation::gelu_tanh);
}

}  // namespace warpfuse
