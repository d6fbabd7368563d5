#include "bench/check.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <limits>

#include "runtime/load/plugin.h"

namespace warpfuse::host::bench {
namespace {

constexpr int64_t kPieceElements = int64_t{16} * 1024 * 1024;  // 128 MiB in double precision
constexpr double kAtenFactor = 8;

// Leaves NaN in the memory that the next outputs are likely to get; and libraries allocate their
// workspaces, which then do not count as the call's.
void prepare(const Variant& variant) {
  if (!variant.overwritten.defined()) {
    variant.call(0).spoil();
  }
}

// The error of `output`, with the overwritten input as it was before.
double error_of(const Variant& variant, Outputs output, const at::Tensor& before) {
  if (variant.overwritten.defined()) {
    output.result = output.result.clone();
    variant.overwritten.copy_(before);
  }
  return variant.error(output);
}

// What a call that threw was: beyond this variant, or wrong.
Checked failure_of(const c10::Error& error, bool of_aten) {
  using enum Checked::Status;
  if (is_out_of_memory(std::current_exception())) {
    if (!of_aten) {
      throw;
    }
    return {.status = unsupported, .reason = kNoMemory};
  }
  std::string reason = one_line(error.what_without_backtrace());
  const bool refused = of_aten || is_refusal(reason);
  return {.status = refused ? unsupported : wrong, .reason = std::move(reason)};
}

}  // namespace

Expected softmax_gradient(const at::Tensor& y, const at::Tensor& g, const at::Tensor& scaled,
                          int64_t dim) {
  const at::Tensor gy = g * y;
  return {scaled * (g - gy.sum(dim, true)), scaled * (g.abs() + gy.abs().sum(dim, true))};
}

void for_each_piece(const Shape& shape, const std::function<void(const Part&)>& work) {
  size_t cut = shape.softmax_dim() == 0 ? shape.sizes.size() - 1 : 0;
  for (size_t d = 0; d < shape.sizes.size(); ++d) {
    if (d != shape.softmax_dim() && shape.sizes[d] > shape.sizes[cut]) {
      cut = d;
    }
  }
  if (cut == shape.softmax_dim() || shape.elements() == 0) {  // one dimension alone, or no element
    work([&](const at::Tensor& tensor) { return tensor.expand(shape.sizes); });
    return;
  }
  const int64_t size = shape.sizes[cut];
  const int64_t step = std::max<int64_t>(kPieceElements / (shape.elements() / size), 1);
  for (int64_t start = 0; start < size; start += step) {
    const int64_t length = std::min(step, size - start);
    work([&](const at::Tensor& tensor) {
      return tensor.expand(shape.sizes).narrow(static_cast<int64_t>(cut), start, length);
    });
  }
}

double smallest_difference(c10::ScalarType dtype) {
  return std::ldexp(1.0, dtype == at::kHalf ? -24 : -126);
}

double largest_error(const at::Tensor& value, const Expected& expected, double ignored) {
  if (value.numel() == 0) {
    return 0;
  }
  const at::Tensor wide = value.to(at::kDouble);
  const at::Tensor distance = (wide - expected.value).abs();
  const at::Tensor same = distance.le(ignored)
                              .logical_or_(wide.eq(expected.value))
                              .logical_or_(at::isnan(wide).logical_and_(at::isnan(expected.value)));
  return at::where(same, at::zeros_like(distance), distance / expected.size).max().item<double>();
}

double error_beside(const at::Tensor& value, c10::ScalarType dtype, const Expected& expected,
                    double losses) {
  return value.sizes() == expected.value.sizes() && value.scalar_type() == dtype
             ? largest_error(value, expected, smallest_difference(dtype) * losses)
             : std::numeric_limits<double>::infinity();
}

double error_by_pieces(const Case& c, const at::Tensor& value,
                       const std::function<Expected(const Part&)>& expected, double losses) {
  if (value.sizes() != at::IntArrayRef(c.shape.sizes) || value.scalar_type() != c.dtype) {
    return std::numeric_limits<double>::infinity();
  }
  const double ignored = smallest_difference(c.dtype) * losses;
  double worst = 0;
  for_each_piece(c.shape, [&](const Part& part) {
    worst = worse(worst, largest_error(part(value), expected(part), ignored));
  });
  return worst;
}

double worse(double one, double other) { return std::isnan(one) || other <= one ? one : other; }

double tolerance_of(c10::ScalarType dtype, bool of_aten) {
  const double factor = of_aten ? kAtenFactor : 1;
  switch (dtype) {
    case at::kDouble:
      return 1e-12 * factor;
    case at::kHalf:
      return 7e-4 * factor;
    case at::kBFloat16:
      return 5e-3 * factor;
    default:
      return 2e-5 * factor;
  }
}

Checked check(const Variant& variant, const Run& run) {
  const bool of_aten = variant.kind == Variant::Kind::aten;
  const bool overwrites = variant.overwritten.defined();
  const at::Tensor before = overwrites ? variant.overwritten.clone() : at::Tensor();
  Outputs output{at::Tensor()};
  Checked checked;
  std::optional<int64_t> peak_bytes;
  try {
    prepare(variant);
    rewind_generators();
    const auto call = [&] { peak_bytes = run([&] { output = variant.call(0); }); };
    if (of_aten) {
      call();
    } else {
      checked.launches = launches_during(call);
    }
  } catch (const c10::Error& error) {
    return failure_of(error, of_aten);
  }
  if (peak_bytes) {
    checked.extra_bytes = *peak_bytes - (overwrites ? 0 : output.bytes());
  }
  checked.error = error_of(variant, output, before);
  if (!(*checked.error <= variant.tolerance)) {  // also where it is NaN
    checked.status = Checked::Status::wrong;
    checked.reason =
        fmt::format("error {:.2g} where {:.2g} is allowed", *checked.error, variant.tolerance);
  }
  return checked;
}

}  // namespace warpfuse::host::bench
