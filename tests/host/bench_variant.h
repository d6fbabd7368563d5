#pragma once

// Rows, ATen's variants of them, and their checks.

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "bench/benchmark.h"

namespace warpfuse::host::bench {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

inline Case bench_row(const char* op, Direction direction, const char* shape, c10::ScalarType dtype,
                      Mask mask = Mask::none) {
  return {find_benchmark(op), direction, parse_shape(shape).value(), dtype, mask};
}

inline Variant variant(const Case& c, const char* name, const Setup& setup = {.device = at::kCPU}) {
  const std::vector<Variant> all = c.op->variants(c, setup);
  return *std::ranges::find(all, name, &Variant::name);
}

// Of the variant's result, after `change`.
inline bool passes(const Variant& variant, const std::function<void(Outputs&)>& change) {
  rewind_generators();
  Outputs outputs = variant.call(0);
  change(outputs);
  return variant.error(outputs) <= variant.tolerance;
}

inline void as_it_is(Outputs&) {}

// Puts a number in place of the last element.
inline auto last_is(double value) {
  return [value](Outputs& o) {
    o.result = o.result.clone(at::MemoryFormat::Contiguous);
    o.result.view(-1)[-1] = value;
  };
}

}  // namespace warpfuse::host::bench
