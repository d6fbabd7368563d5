#pragma once

#include "common/cascade_sum.h"
#include "rowwise/cuda/mask.cuh"
#include "rowwise/cuda/pack.cuh"

namespace warpfuse::cuda {

/// The gradient of a row, for the same tiers as Forward:
///   softmax:      dx = scale * y * (g - sum(y * g)), zero for hidden keys
///   log_softmax:  dx = g - exp(y) * sum(g)
template <typename T_, typename Mask, bool kLog>
struct Backward {
  using T = T_;
  using C = Compute<T>;

  struct Cached {
    C y[kPack<T>];
    C g[kPack<T>];
  };

  struct Row {
    const T* y;
    const T* g;
    T* dx;
    PackedRow<T> layout;
    typename Mask::Row interval;
  };

  struct Result {
    C sum;
    bool check_mask;  // hidden keys may not be zero by themselves
  };

  struct Partial {
    CascadeSum<C> sum{C(0)};
  };

  const T* output;       // [rows, columns]
  const T* grad_output;  // [rows, columns]
  T* grad_input;         // [rows, columns]
  Mask mask;
  C scale;
  int64_t columns;

  __device__ Row row(int64_t index) const {
    const int64_t offset = index * columns;
    const auto interval = mask.row(index, columns);
    return {output + offset, grad_output + offset, grad_input + offset,
            PackedRow<T>(output + offset, columns, interval.begin, interval.end), interval};
  }

  __device__ void read(const Row& row, int pack, Cached& cached) const {
    const int64_t column = row.layout.column(pack);
    const bool full = row.layout.full(pack);
    // Outside the row, what adds nothing to the sum.
    load_pack(row.y, column, full, row.interval.begin, row.interval.end, C(0), cached.y);
    load_pack(row.g, column, full, row.interval.begin, row.interval.end, C(0), cached.g);
    if constexpr (Mask::kRules) {
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) {
        // What comes for a hidden key must not reach the sum, were it NaN.
        if (in_interval(row, column + i) && !mask.fills() && mask.hides(row.interval, column + i)) {
          cached.g[i] = C(0);
        }
      }
    }
  }

  template <typename Group, typename Each>
  __device__ Result reduce(const Row& row, const Group& group, const Each& each) const {
    Partial partial;
    each([&](Cached& cached) { add(partial, cached); });
    return combine(row, group, partial);
  }

  __device__ void write(const Row& row, int pack, const Cached& cached,
                        const Result& result) const {
    const bool read = row.layout.read(pack);
    const int64_t column = row.layout.column(pack);
    C values[kPack<T>];
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      if constexpr (kLog) {
        values[i] = cached.g[i] - exponential<T>(cached.y[i]) * result.sum;
      } else {
        values[i] = cached.y[i] * (cached.g[i] - result.sum) * scale;
      }
      if (!read || (result.check_mask &&
                    (!in_interval(row, column + i) || mask.hides(row.interval, column + i)))) {
        values[i] = C(0);
      }
    }
    store_pack(row.dx, column, columns, values);
  }

  // --- for rows that are read twice ---

  __device__ void add(Partial& partial, const Cached& cached) const {
    C sum = 0;
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      sum += kLog ? cached.g[i] : cached.y[i] * cached.g[i];
    }
    partial.sum.add(sum);
  }

  template <typename Group>
  __device__ Result combine(const Row&, const Group& group, const Partial& partial) const {
    const C sum = group.sum(partial.sum.value());
    const bool finite = sum - sum == C(0);
    return {sum, Mask::kRules && (mask.fills() || !finite)};
  }

  __device__ void prepare(Cached&, const Result&) const {}

 private:
  __device__ static bool in_interval(const Row& row, int64_t key) {
    return key >= row.interval.begin && key < row.interval.end;
  }
};

}  // namespace warpfuse::cuda
