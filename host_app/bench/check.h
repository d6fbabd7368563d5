#pragma once

#include "bench/benchmark.h"

namespace warpfuse::host::bench {

// References are ATen's operators in double precision, computed piece by piece on the inputs'
// device. The error of an element is |value - reference| over the size of the terms that it is made
// of, so that rounding gives about the same number everywhere.
struct Expected {
  at::Tensor value, size;
};

// The gradient of a softmax that gave y, for a gradient g of it; `scaled` is y times what the
// scores were multiplied by.
Expected softmax_gradient(const at::Tensor& y, const at::Tensor& g, const at::Tensor& scaled,
                          int64_t dim);

// The part of a tensor that a piece has; the tensor broadcasts to the row's shape.
using Part = std::function<at::Tensor(const at::Tensor&)>;

// Calls `work` with pieces of the shape small enough for a few of them in double precision, cut
// along the largest other dimension, so that each softmax is whole.
void for_each_piece(const Shape& shape, const std::function<void(const Part&)>& work);

// A difference below this does not count: the dtype's smallest number (float16: 2^-24, others
// 2^-126).
double smallest_difference(c10::ScalarType dtype);

// The largest error, where the difference is above `ignored`; NaN where there is one that is not
// expected.
double largest_error(const at::Tensor& value, const Expected& expected, double ignored);

// The same of a result that is whole; infinite for one of another shape or dtype. See `losses`
// below.
double error_beside(const at::Tensor& value, c10::ScalarType dtype, const Expected& expected,
                    double losses = 1);

// The same of a result of the row's shape and dtype, by pieces; infinite for another one. The
// result may lose the dtype's smallest number `losses` times: once for each rounding, times what
// the rounded number is multiplied by.
double error_by_pieces(const Case& c, const at::Tensor& value,
                       const std::function<Expected(const Part&)>& expected, double losses = 1);

// Gradients are drawn normally; none is as large.
inline constexpr double kMaxGradient = 8;

// The larger of two errors; NaN if either is.
double worse(double one, double other);

// What a right result may have: a little more than one rounding, float64 1e-12, float32 2e-5,
// float16 7e-4, bfloat16 5e-3; eight times that for ATen, which rounds between its kernels.
double tolerance_of(c10::ScalarType dtype, bool of_aten);

struct Checked {
  enum class Status { ok, wrong, unsupported };

  Status status = Status::ok;
  std::string reason = {};           // where it is not ok
  std::optional<double> error = {};  // where there is a result
  // The call's memory besides its outputs, where it is counted.
  std::optional<int64_t> extra_bytes = {};
  Json launches = {};  // of the plugin's kernels; null for ATen
};

// Runs an action, and returns the peak of its memory, or none where it is not counted.
using Run = std::function<std::optional<int64_t>(const std::function<void()>&)>;

// Calls the variant on its first inputs and compares the outputs. They are computed in memory that
// was full of NaN, so that an element that is never written does not pass.
Checked check(const Variant& variant, const Run& run);

constexpr const char* kNoMemory = "out of memory";

}  // namespace warpfuse::host::bench
