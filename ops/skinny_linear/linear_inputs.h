#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string_view>

#include "skinny_linear/skinny_linear.h"

namespace warpfuse {

/// The arguments of norm_linear, linear_residual and linear_argmax, each of which has some of them.
struct LinearInputs {
  const char* op;
  at::Tensor input;             // [.., in]
  at::Tensor weight;            // [out, in]
  at::Tensor bias = {};         // [out]; undefined tensors are absent
  at::Tensor norm_weight = {};  // [in]
  at::Tensor norm_bias = {};    // [in]
  at::Tensor residual = {};     // [.., out]
  Norm norm = Norm::none;
  double epsilon = 0;
  Activation activation = Activation::none;
  int64_t* tokens = nullptr;  // [..]: where linear_argmax's result goes

  /// Throws unless they are as the schemas want them. Reads no data.
  void check() const;

  /// [.., out].
  c10::SymDimVector output_sizes() const;

  /// Applies the norm to the input, by ATen's operator.
  void normalise();

  /// By ATen's operators: for many rows, or what the kernels for few rows do not take.
  at::Tensor by_aten();

  /// For the kernels, with no output but tokens; all but the weight are made contiguous, and held
  /// here, and the input is normalised where a kernel takes it only so. Nothing where the kernels
  /// on the input's device do not take them.
  std::optional<SkinnyLinearArguments> few_rows();
};

inline at::Tensor or_undefined(const std::optional<at::Tensor>& tensor) {
  return tensor.value_or(at::Tensor());
}

Norm norm_named(const char* op, std::string_view name);
Activation activation_named(const char* op, std::string_view name);

}  // namespace warpfuse
