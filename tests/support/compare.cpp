#include "compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>

#include "inputs.h"

namespace {

at::Tensor as_double(const at::Tensor& tensor) {
  return tensor.detach().to(at::kCPU, at::kDouble).contiguous();
}

bool is_narrow(at::ScalarType dtype) { return dtype == at::kHalf || dtype == at::kBFloat16; }

/// The distance between neighbours of `dtype` at `value`.
double ulp(double value, at::ScalarType dtype) {
  const int digits = dtype == at::kHalf ? 11 : 8;
  const int smallest = dtype == at::kHalf ? -24 : -133;
  if (value == 0.0) {
    return std::ldexp(1.0, smallest);
  }
  return std::ldexp(1.0, std::max(std::ilogb(value) - (digits - 1), smallest));
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

std::string report(int64_t index, at::IntArrayRef sizes, double got, double expected,
                   double allowed, int64_t wrong) {
  std::ostringstream text;
  text.precision(17);
  text << place(index, sizes) << ": got " << got << ", expected " << expected << ", off by "
       << std::abs(got - expected) << ", allowed " << allowed << " (" << wrong
       << " wrong elements)";
  return text.str();
}

std::string shape_mismatch(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() ? "" : "shapes differ: " + describe(a) + ", " + describe(b);
}

/// Walks two float64 tensors; `allowed(i, expected)` is the largest admitted difference.
template <typename Allowed>
std::string walk(const at::Tensor& got, const at::Tensor& expected, const Allowed& allowed) {
  const auto* g = got.const_data_ptr<double>();
  const auto* e = expected.const_data_ptr<double>();
  int64_t wrong = 0;
  int64_t worst = -1;
  double worst_ratio = 0.0;
  for (int64_t i = 0; i < got.numel(); ++i) {
    if (g[i] == e[i] || (std::isnan(g[i]) && std::isnan(e[i]))) {
      continue;
    }
    const double limit = allowed(i, e[i]);
    double ratio = std::abs(g[i] - e[i]) / limit;
    if (!std::isfinite(ratio)) {
      ratio = kInf;  // another class, or no difference admitted
    }
    if (ratio > 1.0) {
      ++wrong;
      if (ratio > worst_ratio) {
        worst = i;
        worst_ratio = ratio;
      }
    }
  }
  return wrong == 0
             ? ""
             : report(worst, got.sizes(), g[worst], e[worst], allowed(worst, e[worst]), wrong);
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
  const auto* exact = expected.values.const_data_ptr<double>();
  const auto* error = expected.error.const_data_ptr<double>();
  // Rounding first puts overflow to infinity, and underflow, where the dtype has them.
  const at::Tensor rounded = as_double(expected.values.to(dtype));
  return walk(as_double(output), rounded, [&](int64_t i, double value) {
    if (exact[i] == 0.0 && error[i] == 0.0) {
      return 0.0;
    }
    double limit = std::max(slack * epsilon * error[i], floor);
    if (is_narrow(dtype)) {
      limit = std::max(limit, ulp(value, dtype));
    }
    return limit;
  });
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
  const at::Tensor ld = as_double(left);
  const at::Tensor rd = as_double(right);
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
  return walk(as_double(output), as_double(aten), [&](int64_t, double value) {
    switch (dtype) {
      case at::kDouble:
        return std::max(1e-12 * std::abs(value) + 1e-15, floor);
      case at::kFloat:
        return std::max(2e-5 * std::abs(value) + 1e-9, floor);
      default:
        return std::max(2 * ulp(value, dtype), floor);
    }
  });
}

std::string far_apart(const at::Tensor& a, const at::Tensor& b, double relative) {
  if (std::string text = shape_mismatch(a, b); !text.empty()) {
    return text;
  }
  const at::Tensor left = as_double(a);
  const at::Tensor right = as_double(b);
  const at::Tensor finite = at::isfinite(right);
  const double size =
      right.numel() == 0 ? 1.0 : at::where(finite, right.abs(), 0.0).max().item<double>();
  return walk(left, right, [&](int64_t, double) { return relative * std::max(size, 1.0); });
}
