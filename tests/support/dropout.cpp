#include "dropout.h"

#include <warpfuse/dispatch.h>

#include <cmath>

#include "reference.h"

using warpfuse::detail::find_operator;
using OptionalTensor = std::optional<at::Tensor>;

std::string describe(const DropoutCall& call) {
  return c10::str(call.softmax_first ? "softmax, dropout" : "dropout, softmax", " of p = ", call.p,
                  " over dim ", call.dim);
}

at::Tensor rng_of(int64_t seed, int64_t offset, const at::Device& device) {
  return at::tensor({seed, offset}, at::kLong).to(device);
}

// --- the private operators ----------------------------------------------------------------------

DropoutResult dropout_softmax(const at::Tensor& self, const DropoutCall& call,
                              const OptionalTensor& rng) {
  static const auto op =
      find_operator<DropoutResult(const at::Tensor&, int64_t, double, bool, const OptionalTensor&)>(
          "warpfuse::_dropout_softmax");
  return op.call(self, call.dim, call.p, call.softmax_first, rng);
}

at::Tensor dropout_softmax_backward(const at::Tensor& grad_output, const at::Tensor& saved,
                                    const at::Tensor& statistics, const at::Tensor& rng,
                                    const DropoutCall& call) {
  static const auto op =
      find_operator<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                               const at::Tensor&, int64_t, double, bool)>(
          "warpfuse::_dropout_softmax_backward");
  return op.call(grad_output, saved, statistics, rng, call.dim, call.p, call.softmax_first);
}

std::tuple<at::Tensor, at::Tensor> linear_dropout_softmax(const at::Tensor& input,
                                                          const at::Tensor& weight,
                                                          const OptionalTensor& bias, double p,
                                                          const OptionalTensor& rng, bool split) {
  static const auto op = find_operator<std::tuple<at::Tensor, at::Tensor>(
      const at::Tensor&, const at::Tensor&, const OptionalTensor&, double, const OptionalTensor&,
      bool)>("warpfuse::_linear_dropout_softmax");
  return op.call(input, weight, bias, p, rng, split);
}

DropoutResult masked_dropout(const at::Tensor& scores, const MaskArguments& a, double p,
                             const OptionalTensor& rng) {
  static const auto op = find_operator<DropoutResult(
      const at::Tensor&, double, const OptionalTensor&, c10::string_view, const OptionalTensor&,
      const OptionalTensor&, int64_t, std::optional<double>, double, const OptionalTensor&)>(
      "warpfuse::_scaled_masked_softmax_dropout");
  return op.call(scores, a.scale, a.attn_mask, a.causal, a.query_positions, a.key_lengths, a.window,
                 a.masked_value, p, rng);
}

at::Tensor masked_dropout_backward(const at::Tensor& grad_output, const at::Tensor& scores,
                                   const at::Tensor& statistics, const at::Tensor& rng,
                                   const MaskArguments& a, double p) {
  static const auto op = find_operator<at::Tensor(
      const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, double,
      const OptionalTensor&, c10::string_view, const OptionalTensor&, const OptionalTensor&,
      int64_t, std::optional<double>, double)>("warpfuse::_scaled_masked_softmax_dropout_backward");
  return op.call(grad_output, scores, statistics, rng, a.scale, a.attn_mask, a.causal,
                 a.query_positions, a.key_lengths, a.window, a.masked_value, p);
}

at::Tensor dropout_mask(const at::Tensor& like, double p, const at::Tensor& rng) {
  static const auto op = find_operator<at::Tensor(const at::Tensor&, double, const at::Tensor&)>(
      "warpfuse::_dropout_mask");
  return op.call(like, p, rng);
}

bool is_kept(const warpfuse::Dropout& dropout, const warpfuse::Rng& rng, uint64_t element) {
  const unsigned block = kept_of_block(dropout, rng, element / warpfuse::kDropoutBlock);
  return (block >> (element % warpfuse::kDropoutBlock) & 1) != 0;
}

at::Tensor plain_factors(at::IntArrayRef sizes, double p, const at::Tensor& rng) {
  const at::Tensor state = rng.cpu();
  const warpfuse::Rng numbers{static_cast<uint64_t>(state[0].item<int64_t>()),
                              static_cast<uint64_t>(state[1].item<int64_t>())};
  const warpfuse::Dropout dropout(p);
  at::Tensor factors = at::empty(sizes, at::kDouble);
  auto* out = factors.mutable_data_ptr<double>();
  for (int64_t i = 0; i < factors.numel(); ++i) {
    out[i] = is_kept(dropout, numbers, i) ? dropout.scale : 0.0;
  }
  return factors;
}

// --- expectations -------------------------------------------------------------------------------

namespace {

/// What `roundings` to `dtype` do to values, in units of compare.h beside float32's own. float16's
/// subnormals are 2^-24 apart.
at::Tensor rounding_of(const at::Tensor& values, at::ScalarType dtype, int roundings = 1) {
  if (dtype == at::kHalf) {
    return (values.abs() * std::ldexp(1.0, 13) + 1) * roundings;
  }
  return values.abs() * (dtype == at::kBFloat16 ? std::ldexp(1.0, 16) * roundings : 0.0);
}

/// Over a dimension that is not the last, dropout before softmax is rounded, and so is the gradient
/// between the two.
int roundings_between(const at::Tensor& tensor, const DropoutCall& call) {
  return c10::maybe_wrap_dim(call.dim, tensor.dim()) == tensor.dim() - 1 ? 0 : 1;
}

/// What a result is rounded beside the expectation that it is compared with, where an error of that
/// size is there already: else compare.h allows for it.
int roundings_in_all(int roundings_between) {
  return roundings_between > 0 ? roundings_between + 1 : 0;
}

/// `expected`, rounded to `dtype` so often before the result is, times factors of 0 or more.
Expected times(const Expected& expected, const at::Tensor& factors, at::ScalarType dtype,
               int roundings) {
  const at::Tensor f = factors.to(expected.values.device());
  const at::Tensor of_product = expected.values.abs() * 2;
  const at::Tensor of_roundings = rounding_of(expected.values, dtype, roundings_in_all(roundings));
  return {expected.values * f, (expected.error + of_product + of_roundings) * f};
}

/// The error of softmax's backward, exact.error where its inputs are exact, when the softmax is
/// recomputed, and it and the dropped gradients h may be rounded to `dtype`.
at::Tensor recomputed_error(const Expected& exact, const Expected& softmax, const at::Tensor& h,
                            int64_t dim, at::ScalarType dtype) {
  const at::Tensor of_softmax = softmax.error + rounding_of(softmax.values, dtype);
  const at::Tensor of_h = rounding_of(h, dtype);
  const at::Tensor products = (softmax.values * h).abs().sum(dim, true);
  const at::Tensor of_products = (of_softmax * h.abs() + softmax.values * of_h).sum(dim, true);
  return exact.error + rounding_of(exact.values, dtype) + of_softmax * (h.abs() + products) +
         softmax.values * (of_h + of_products);
}

}  // namespace

Expected expected_dropout_softmax(const at::Tensor& self, const at::Tensor& factors,
                                  const DropoutCall& call) {
  const at::ScalarType dtype = self.scalar_type();
  if (call.softmax_first) {
    return times(expected_softmax(self, call.dim), factors, dtype, 0);
  }
  const int roundings = roundings_between(self, call);
  const at::Tensor x = as_double(self) * factors.to(self.device());
  const Expected softmax = expected_softmax(x, call.dim);
  const at::Tensor rounding = x.abs() * 2 + rounding_of(x, dtype, roundings);
  const at::Tensor of_sum = (softmax.values * rounding).sum(call.dim, true);
  return {softmax.values, softmax.error + softmax.values * (rounding + of_sum) +
                              rounding_of(softmax.values, dtype, roundings_in_all(roundings))};
}

Expected expected_dropout_softmax_backward(const at::Tensor& grad_output, const at::Tensor& saved,
                                           const at::Tensor& factors, const DropoutCall& call) {
  const at::ScalarType dtype = saved.scalar_type();
  if (!call.softmax_first) {
    return times(expected_softmax_backward(grad_output, saved, call.dim), factors, dtype,
                 roundings_between(saved, call));
  }
  const Expected softmax = expected_softmax(saved, call.dim);
  const at::Tensor h = as_double(grad_output) * factors.to(saved.device());
  const Expected exact = expected_softmax_backward(h, softmax.values, call.dim);
  return {exact.values, recomputed_error(exact, softmax, h, call.dim, dtype)};
}

Expected expected_masked_dropout(const at::Tensor& scores, const at::Tensor& factors,
                                 const MaskArguments& arguments) {
  return times(expected_masked_softmax(scores, arguments), factors, scores.scalar_type(), 0);
}

Expected expected_masked_dropout_backward(const at::Tensor& grad_output, const at::Tensor& scores,
                                          const at::Tensor& factors,
                                          const MaskArguments& arguments) {
  const Expected softmax = expected_masked_softmax(scores, arguments);
  const at::Tensor h = as_double(grad_output) * factors.to(scores.device());
  const Expected exact = expected_masked_softmax_backward(h, softmax.values, arguments);
  const at::Tensor error = recomputed_error(exact, softmax, h, -1, scores.scalar_type());
  return {exact.values,
          exact.error + at::where(exact.error > 0, error * std::abs(arguments.scale), 0.0)};
}
