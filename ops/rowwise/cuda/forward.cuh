#pragma once

#include "common/cascade_sum.h"
#include "rowwise/cuda/load.cuh"
#include "rowwise/cuda/store.cuh"

namespace warpfuse::cuda {

/// What a row of softmax computes; the tiers decide where the row lives meanwhile. They call
///   row(index)               once,
///   read(row, pack, cached)  for the packs that row.layout.read(pack) names,
///   reduce(row, group, each) once, with each(f) calling f(cached) for this lane's packs,
///   write(row, pack, cached, result) for all packs of the row.
template <typename Load, typename Store>
struct Forward {
  using T = typename Load::Element;
  using C = Compute<T>;

  /// One pack between its read and its write.
  struct Cached {
    C value[kPack<T>];
  };

  struct Row {
    const T* in;
    T* out;
    PackedRow<T> layout;
    typename Load::Mask::Row interval;
    bool visible;  // this lane saw a visible key
  };

  struct Result {
    C max;
    C factor;
    bool empty;  // no visible key: zeros
    bool sound;  // the sum is positive and finite
  };

  Load load;
  Store store;
  int64_t columns;

  __device__ Row row(int64_t index) const {
    const T* in = load.input + index * columns;
    const auto interval = load.mask.row(index, columns);
    return {in, store.output + index * columns,
            PackedRow<T>(in, columns, interval.begin, interval.end), interval,
            load.mask.any_visible(interval)};
  }

  __device__ void read(Row& row, int pack, Cached& cached) const {
    load.load(row.in, row.layout, row.interval, pack, cached.value, row.visible);
  }

  template <typename Group, typename Each>
  __device__ Result reduce(const Row& row, const Group& group, const Each& each) const {
    C max = lowest<C>();
    each([&](Cached& cached) { max = larger(max, max_of(cached)); });
    max = group.max(max);
    C sum = 0;
    each([&](Cached& cached) { sum += exponentials(cached, max); });
    return result(row, group, max, group.sum(sum));
  }

  __device__ void write(const Row& row, int pack, const Cached& cached,
                        const Result& result) const {
    C values[kPack<T>];
    const bool read = row.layout.read(pack);
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      const int64_t key = row.layout.column(pack) + i;
      // Hidden keys are exact zeros, in a row of NaN too; elsewhere exp(-inf) has given them.
      const bool hidden =
          !read || result.empty || (Load::Mask::kRules && !result.sound && is_hidden(row, key));
      values[i] = hidden ? C(0) : Store::value(cached.value[i], result.max, result.factor);
    }
    store_pack(row.out, row.layout.column(pack), columns, values);
  }

  // --- for rows that are read twice ---

  /// The maximum and the sum so far of what one lane has read.
  struct Partial {
    C max = lowest<C>();
    CascadeSum<C> sum{C(0)};
  };

  __device__ void add(Partial& partial, const Cached& cached) const {
    const C of_pack = max_of(cached);
    if (of_pack > partial.max) {
      partial.sum.scale(exponential<T>(partial.max - of_pack));
      partial.max = of_pack;
    }
    // While all are -inf, a zero in place of the maximum keeps their sum at 0, and a NaN in it.
    Cached copy = cached;
    partial.sum.add(exponentials(copy, partial.max == lowest<C>() ? C(0) : partial.max));
  }

  template <typename Group>
  __device__ Result combine(const Row& row, const Group& group, const Partial& partial) const {
    const C max = group.max(partial.max);
    const C scale = partial.max == max ? C(1) : exponential<T>(partial.max - max);
    return result(row, group, max, group.sum(partial.sum.value() * scale));
  }

  /// Brings a pack that was read again to what write() takes.
  __device__ void prepare(Cached& cached, const Result& result) const {
    exponentials(cached, result.max);
  }

 private:
  __device__ static C max_of(const Cached& cached) {
    C max = cached.value[0];
#pragma unroll
    for (int i = 1; i < kPack<T>; ++i) {
      max = larger(max, cached.value[i]);
    }
    return max;
  }

  /// The sum of exp(x - max), which take the place of x where the store wants them.
  __device__ static C exponentials(Cached& cached, C max) {
    C sum = 0;
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      const C value = exponential<T>(cached.value[i] - max);
      sum += value;
      if constexpr (Store::kKeepsExponential) {
        cached.value[i] = value;
      }
    }
    return sum;
  }

  template <typename Group>
  __device__ Result result(const Row& row, const Group& group, C max, C sum) const {
    bool empty = false;
    if constexpr (Load::Mask::kRules) {
      empty = !group.any(row.visible);
    }
    return {max, Store::factor(sum), empty, sum > 0 && sum < C(INFINITY)};
  }

  __device__ bool is_hidden(const Row& row, int64_t key) const {
    return key < row.interval.begin || key >= row.interval.end ||
           (!load.mask.fills() && load.mask.hides(row.interval, key));
  }
};

}  // namespace warpfuse::cuda
