#pragma once

#include "bench/benchmark.h"

// A row of an operator.
inline warpfuse::host::bench::Case bench_row(
    const char* op, warpfuse::host::bench::Direction direction, const char* shape,
    c10::ScalarType dtype, warpfuse::host::bench::Mask mask = warpfuse::host::bench::Mask::none) {
  using namespace warpfuse::host::bench;
  return {find_benchmark(op), direction, parse_shape(shape).value(), dtype, mask};
}
