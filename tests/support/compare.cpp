#include "compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>

#include "inputs.h"

namespace {

bool is_narrow(at::ScalarType dtype) { return dtype == at::kHalf || dtype == at::kBFloat16; }

/// The distances between neighbours of `dtype` at `values`, which are float64.
at::Tensor ulps(const at::Tensor& values, at::ScalarType dtype) {
  const int digits = dtype == at::kHalf ? 11 : 8;
  const int smallest = dtype == at::kHalf ? -24 : -133;
  const at::Tensor exponents = std::get<1>(at::frexp(values)) - digits;
  return at::exp2(exponents.masked_fill(values == 0, smallest).clamp_min(smallest).to(at::kDouble));
}

std::string place(int64_t index, at::IntArrayRef sizes) {
  std::vector<int64_t> coordinates(sizes.size());
  for (int64_t d = static_cast<int64_t>(sizes.size()) - 1; d >= 0; --d) {
    coordinates[d] = index % sizes[d];
    index /= sizes[d];
  }
  std::ostringstream text;
  text << "at " << at::IntArrayRef(coordinates) << " of " << sizes;
  return text.str();
}

std::string shape_mismatch(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() ? "" : "shapes differ: " + describe(a) + ", " + describe(b);
}

/// Compares float64 tensors of one shape and device: `allowed` is the largest admitted difference
/// of each element.
std::string difference(const at::Tensor& got, const at::Tensor& expected,
                       const at::Tensor& allowed) {
  const at::Tensor distance = (got - expected).abs();
  const at::Tensor same =
      (got == expected).logical_or(at::isnan(got).logical_and(at::isnan(expected)));
  const at::Tensor near = (distance <= allowed).logical_and(at::isfinite(distance));
  const at::Tensor wrong = same.logical_or(near).logical_not();
  if (!wrong.any().item<bool>()) {
    return "";
  }
  // Another class, and a difference where none is admitted, are the worst.
  const at::Tensor ratio = (distance / allowed).nan_to_num(kInf, kInf).masked_fill(~wrong, -1.0);
  const auto worst = ratio.argmax().item<int64_t>();
  const auto at_worst = [&](const at::Tensor& values) {
    return values.reshape(-1)[worst].item<double>();
  };
  std::ostringstream text;
  text.precision(17);
  text << place(worst, got.sizes()) << ": got " << at_worst(got) << ", expected "
       << at_worst(expected) << ", off by " << at_worst(distance) << ", allowed "
       << at_worst(allowed) << " (" << wrong.sum().item<int64_t>() << " wrong elements)";
  return text.str();
}

}  // namespace

std::string mismatch(const at::Tensor& output, const Expected& expected, double slack) {
  if (std::string text = shape_mismatch(output, expected.values); !text.empty()) {
    return text;
  }
  const at::ScalarType dtype = output.scalar_type();
  // float64 has no wider type for its sums: 8 times the roundings that float32 is admitted.
  const double epsilon = dtype == at::kDouble ? std::ldexp(1.0, -50) : std::ldexp(1.0, -24);
  const double floor = dtype == at::kDouble ? 1e-307 : dtype == at::kHalf ? 0.0 : 1e-37;
  // Rounding first puts overflow to infinity, and underflow, where the dtype has them.
  const at::Tensor rounded = expected.values.to(dtype).to(at::kDouble);
  at::Tensor allowed = (expected.error * (slack * epsilon)).clamp_min(floor);
  if (is_narrow(dtype)) {
    allowed = at::maximum(allowed, ulps(rounded, dtype));
  }
  const at::Tensor exact = (expected.values == 0).logical_and(expected.error == 0);
  return difference(output.detach().to(rounded.device(), at::kDouble), rounded,
                    allowed.masked_fill(exact, 0.0));
}

std::string bit_mismatch(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type()) {
    return "dtypes differ: " + describe(a) + ", " + describe(b);
  }
  if (std::string text = shape_mismatch(a, b); !text.empty()) {
    return text;
  }
  const at::Tensor left = a.detach().cpu().contiguous();
  const at::Tensor right = b.detach().cpu().contiguous();
  if (left.numel() == 0 ||
      std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0) {
    return "";
  }
  // Signed zeros differ in bits; NaN need not.
  const at::Tensor ld = double_on_cpu(left);
  const at::Tensor rd = double_on_cpu(right);
  const auto* l = ld.const_data_ptr<double>();
  const auto* r = rd.const_data_ptr<double>();
  for (int64_t i = 0; i < ld.numel(); ++i) {
    const bool same = l[i] == r[i] ? std::signbit(l[i]) == std::signbit(r[i])
                                   : std::isnan(l[i]) && std::isnan(r[i]);
    if (!same) {
      std::ostringstream text;
      text.precision(17);
      text << place(i, ld.sizes()) << ": " << l[i] << " is not " << r[i];
      return text.str();
    }
  }
  return "";
}

std::string aten_mismatch(const at::Tensor& output, const at::Tensor& aten, double floor) {
  if (output.scalar_type() != aten.scalar_type()) {
    return "dtypes differ: " + describe(output) + ", ATen's " + describe(aten);
  }
  if (std::string text = shape_mismatch(output, aten); !text.empty()) {
    return text;
  }
  const at::ScalarType dtype = output.scalar_type();
  const at::Tensor expected = double_on_cpu(aten);
  const at::Tensor allowed = dtype == at::kDouble  ? expected.abs() * 1e-12 + 1e-15
                             : dtype == at::kFloat ? expected.abs() * 2e-5 + 1e-9
                                                   : ulps(expected, dtype) * 2;
  return difference(double_on_cpu(output), expected, allowed.clamp_min(floor));
}

std::string far_apart(const at::Tensor& a, const at::Tensor& b, double relative) {
  if (std::string text = shape_mismatch(a, b); !text.empty()) {
    return text;
  }
  const at::Tensor right = double_on_cpu(b);
  const at::Tensor finite = at::isfinite(right);
  const double size =
      right.numel() == 0 ? 1.0 : at::where(finite, right.abs(), 0.0).max().item<double>();
  return difference(double_on_cpu(a), right, at::full_like(right, relative * std::max(size, 1.0)));
}
