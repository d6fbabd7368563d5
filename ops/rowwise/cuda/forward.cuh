#pragma once

#include "common/cascade_sum.h"
#include "rowwise/cuda/group.cuh"
#include "rowwise/cuda/load.cuh"
#include "rowwise/cuda/store.cuh"

namespace warpfuse::cuda {

/// What a row of softmax computes; the tiers (tiers.cuh) decide where the row lives meanwhile. They
/// call
///   row(step)                  once,
///   fetch or stage, then keep  for the packs that row.layout.read(pack) names,
///   reduce                     once where all kept packs are in registers, else
///   add, then total            over the packs, in any number of lanes,
///   write                      for all packs of the row.
template <typename Load, typename Store>
struct Forward {
  using T = typename Load::Element;
  using C = Compute<T>;

  /// A pack as it lies in memory.
  struct Bits {
    uint4 x;
  };
  /// A pack between its read and its write: scores, then what the store wants of them.
  struct Kept {
    C value[kPack<T>];
  };
  /// What lanes, warps and blocks tell each other of their part of the row.
  struct Summary {
    C max;
    C sum;  // of exp(x - max)
    bool visible;
  };

  struct Row {
    const T* in;
    T* out;
    PackedRow<T> layout;
    typename Load::Mask::Row interval;
    bool visible;  // this lane saw a visible key

    __device__ bool exists() const { return interval.index >= 0; }
  };

  struct Result {
    C max;
    C factor;
    bool empty;  // no visible key: zeros
    bool sound;  // the sum is positive and finite
  };

  Load load;
  const T* input;  // [rows, columns], rows `input_stride` apart
  T* output;       // [rows, columns]
  int64_t columns;
  int64_t input_stride;
  int64_t elements;  // of input, from its first to its last
  bool alike;        // packs of output are aligned where those of input are

  Forward(const Load& load, const T* input, T* output, int64_t rows, int64_t columns,
          int64_t input_stride)
      : load(load),
        input(input),
        output(output),
        columns(columns),
        input_stride(input_stride),
        elements((rows - 1) * input_stride + columns),
        alike(input_stride % kPack<T> == columns % kPack<T> &&
              reinterpret_cast<uintptr_t>(input) % 16 == reinterpret_cast<uintptr_t>(output) % 16) {
  }

  int64_t arrange(int64_t rows, int rows_of_block) {
    return load.mask.arrange(rows, rows_of_block);
  }

  __device__ Row row(int64_t step) const {
    const auto interval = load.mask.row(step, columns);
    const int64_t before = interval.index * input_stride;
    const T* in = input + before;
    return {in, output + interval.index * columns,
            PackedRow<T>(in, columns, interval.begin, interval.end, before, elements - before),
            interval, load.mask.any_visible(interval)};
  }

  __device__ void fetch(const Row& row, int pack, Bits& bits) const {
    bits.x = load_16_bytes(row.layout.address(row.in, pack));
  }
  /// The same for a pack that may not be read by one access.
  __device__ void gather(const Row& row, int pack, Bits& bits) const {
    bits.x = gather_pack(row.in, row.layout.column(pack), row.interval.begin, row.interval.end);
  }
  __device__ bool ragged(const Row& row) const { return row.layout.ragged(); }
  __device__ bool whole(const Row& row, int pack) const { return row.layout.whole(pack); }

  /// Starts the copy of a pack to shared memory.
  __device__ void stage(const Row& row, int pack, Bits* shared) const {
    copy_16_bytes(&shared->x, row.layout.address(row.in, pack));
  }

  __device__ void keep(Row& row, int pack, const Bits& bits, Kept& kept) const {
    unpack<T>(bits.x, kept.value);
    load.scores(row.layout, row.interval, pack, kept.value, row.visible);
  }

  // --- the sum over the row ---

  __device__ static Summary nothing() { return {lowest<C>(), C(0), false}; }

  /// What the lanes found together.
  __device__ static Summary merge(const LaneGroup& lanes, const Summary& of_lane) {
    const C max = lanes.max(of_lane.max);
    const C sum =
        of_lane.max == max ? of_lane.sum : of_lane.sum * exponential<T>(of_lane.max - max);
    return {max, lanes.sum(sum), Load::Mask::kTensor && lanes.any(of_lane.visible)};
  }

  /// For packs in registers, each(f) calls f(kept) for those of this lane: one exponential an
  /// element, relative to the maximum of the warp; what is left to the maximum of the row goes into
  /// the factor.
  template <typename Group, typename Each>
  __device__ Result reduce(const Row& row, const Group& group, const Each& each) const {
    C max = lowest<C>();
    each([&](Kept& kept) { max = larger(max, max_of(kept)); });
    max = group.lanes().max(max);
    // While all are -inf, a zero in place of the maximum keeps their sum at 0, and a NaN in it.
    const C base = max == lowest<C>() ? C(0) : max;
    C sum = 0;
    each([&](Kept& kept) { sum += exponentials(kept, base); });
    sum = group.lanes().sum(sum);
    const bool visible = Load::Mask::kTensor && group.lanes().any(row.visible);
    const Summary total = group.template total<Forward>({max, sum, visible});
    Result result = finish(row, total);
    if (Store::kKeepsExponential && max != total.max) {
      result.factor *= exponential<T>(max - total.max);
    }
    return result;
  }

  /// The maximum and the sum so far of what one lane has seen, for rows that are seen twice.
  struct Partial {
    C max = lowest<C>();
    CascadeSum<C> sum{C(0)};
  };

  __device__ void add(Partial& partial, const Kept& kept) const {
    const C of_pack = max_of(kept);
    if (of_pack > partial.max) {
      partial.sum.scale(exponential<T>(partial.max - of_pack));
      partial.max = of_pack;
    }
    Kept copy = kept;
    partial.sum.add(exponentials(copy, partial.max == lowest<C>() ? C(0) : partial.max));
  }

  template <typename Group>
  __device__ Summary total(const Row& row, const Group& group, const Partial& partial) const {
    return group.template total<Forward>(
        merge(group.lanes(), {partial.max, partial.sum.value(), row.visible}));
  }

  __device__ Result finish(const Row& row, const Summary& total) const {
    bool empty = false;
    if constexpr (Load::Mask::kTensor) {
      empty = !total.visible;
    } else if constexpr (Load::Mask::kRules) {
      empty = !row.visible;
    }
    return {total.max, Store::factor(total.sum), empty, total.sum > 0 && total.sum < C(INFINITY)};
  }

  /// Brings a pack that was kept again to what write() takes.
  __device__ void prepare(Kept& kept, const Result& result) const {
    exponentials(kept, result.max);
  }

  __device__ void write(const Row& row, int pack, const Kept& kept, const Result& result) const {
    C values[kPack<T>];
    if (!row.layout.read(pack) || result.empty) {
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) {
        values[i] = C(0);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) {
        values[i] = Store::value(kept.value[i], result.max, result.factor);
      }
      // Hidden keys are exact zeros, in a row of NaN too; elsewhere exp(-inf) has given them.
      if (Load::Mask::kRules && !result.sound) {
#pragma unroll
        for (int i = 0; i < kPack<T>; ++i) {
          if (is_hidden(row, row.layout.column(pack) + i)) {
            values[i] = C(0);
          }
        }
      }
    }
    store_pack(row.out, row.layout, pack, alike, pack_bits<T>(values));
  }

 private:
  __device__ static C max_of(const Kept& kept) {
    C max = kept.value[0];
#pragma unroll
    for (int i = 1; i < kPack<T>; ++i) {
      max = larger(max, kept.value[i]);
    }
    return max;
  }

  /// The sum of exp(x - max), which take the place of x where the store wants them.
  __device__ static C exponentials(Kept& kept, C max) {
    C sum = 0;
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      const C value = exponential<T>(kept.value[i] - max);
      sum += value;
      if constexpr (Store::kKeepsExponential) {
        kept.value[i] = value;
      }
    }
    return sum;
  }

  __device__ bool is_hidden(const Row& row, int64_t key) const {
    return key < row.interval.begin || key >= row.interval.end ||
           (!load.mask.fills() && load.mask.hides(row.interval, key));
  }
};

}  // namespace warpfuse::cuda
