#pragma once

// What the operators should give, by ATen's float64 operators on the device of the input: sharing
// no code with the plugin.

#include <ATen/ATen.h>

#include <optional>
#include <string>

/// An expected result with what rounding may do to it. Both are float64, of the result's shape.
struct Expected {
  at::Tensor values;
  at::Tensor
      error;  // the admitted absolute error in units of the computation's epsilon (compare.h)
};

/// Roundings that a row's sum, the exponential and the division may add, in epsilons.
inline constexpr double kBase = 32;

inline at::Tensor as_double(const at::Tensor& tensor) { return tensor.detach().to(at::kDouble); }
inline at::Tensor double_on_cpu(const at::Tensor& tensor) {
  return as_double(tensor.cpu()).contiguous();
}

/// All arguments of scaled_masked_softmax but the scores.
struct MaskArguments {
  double scale = 1.0;
  std::optional<at::Tensor> attn_mask = std::nullopt;
  std::string causal = "none";
  std::optional<at::Tensor> query_positions = std::nullopt;
  std::optional<at::Tensor> key_lengths = std::nullopt;
  int64_t window = 0;
  std::optional<double> masked_value = std::nullopt;
};

Expected expected_softmax(const at::Tensor& self, int64_t dim, bool log = false);
Expected expected_softmax_backward(const at::Tensor& grad_output, const at::Tensor& output,
                                   int64_t dim, bool log = false);
Expected expected_masked_softmax(const at::Tensor& scores, const MaskArguments& arguments);
Expected expected_masked_softmax_backward(const at::Tensor& grad_output, const at::Tensor& output,
                                          const MaskArguments& arguments);

/// Which keys are seen, as a bool tensor of the scores' shape: false where a rule or the boolean
/// mask hides them (the boolean mask hides nothing when masked_value is given).
at::Tensor visible_keys(const at::Tensor& scores, const MaskArguments& arguments);
