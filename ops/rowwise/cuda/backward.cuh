#pragma once

#include "common/cascade_sum.h"
#include "rowwise/cuda/group.cuh"
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

  struct Bits {
    uint4 y, g;
  };
  /// The two inputs as they came, with zeros for what is hidden: half the registers of values.
  using Kept = Bits;
  struct Summary {
    C sum;
  };

  struct Row {
    const T* y;
    const T* g;
    T* dx;
    PackedRow<T> layout;
    typename Mask::Row interval;

    __device__ bool exists() const { return interval.index >= 0; }
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
  int64_t elements;
  bool inputs_alike;  // packs of grad_output are aligned where those of output are
  bool result_alike;  // and those of grad_input

  Backward(const T* output, const T* grad_output, T* grad_input, const Mask& mask, C scale,
           int64_t rows, int64_t columns)
      : output(output),
        grad_output(grad_output),
        grad_input(grad_input),
        mask(mask),
        scale(scale),
        columns(columns),
        elements(rows * columns),
        inputs_alike(place(output) == place(grad_output)),
        result_alike(place(output) == place(grad_input)) {}

  int64_t arrange(int64_t rows, int rows_of_block) { return mask.arrange(rows, rows_of_block); }

  __device__ Row row(int64_t step) const {
    const auto interval = mask.row(step, columns);
    const int64_t before = interval.index * columns;
    const T* y = output + before;
    return {y, grad_output + before, grad_input + before,
            PackedRow<T>(y, columns, interval.begin, interval.end, before, elements - before),
            interval};
  }

  __device__ void fetch(const Row& row, int pack, Bits& bits) const {
    bits.y = load_16_bytes(row.layout.address(row.y, pack));
    bits.g = load_16_bytes(row.layout.address(row.g, pack));
  }
  __device__ void gather(const Row& row, int pack, Bits& bits) const {
    const int64_t column = row.layout.column(pack);
    bits.y = gather_pack(row.y, column, row.interval.begin, row.interval.end);
    bits.g = gather_pack(row.g, column, row.interval.begin, row.interval.end);
  }
  __device__ bool ragged(const Row& row) const { return !inputs_alike || row.layout.ragged(); }
  __device__ bool whole(const Row& row, int pack) const {
    return inputs_alike && row.layout.whole(pack);
  }

  __device__ void stage(const Row& row, int pack, Bits* shared) const {
    copy_16_bytes(&shared->y, row.layout.address(row.y, pack));
    copy_16_bytes(&shared->g, row.layout.address(row.g, pack));
  }

  /// Zeros what must not reach the sum: what lies outside the interval, and g where it is NaN for a
  /// hidden key.
  __device__ void keep(const Row& row, int pack, const Bits& bits, Kept& kept) const {
    kept = bits;
    const bool full = row.layout.full(pack);
    const int64_t column = row.layout.column(pack);
    if (!full) {
      zero(kept.y, [&](int i) { return in_interval(row, column + i); });
      zero(kept.g, [&](int i) { return in_interval(row, column + i); });
    }
    if constexpr (Mask::kTensor) {
      if (!mask.fills()) {
        const unsigned visible = mask.visible_keys(row.interval, column, full);
        zero(kept.g, [&](int i) { return (visible >> i & 1) != 0; });
      }
    }
  }

  __device__ static Summary nothing() { return {C(0)}; }

  __device__ static Summary merge(const LaneGroup& lanes, const Summary& of_lane) {
    return {lanes.sum(of_lane.sum)};
  }

  template <typename Group, typename Each>
  __device__ Result reduce(const Row& row, const Group& group, const Each& each) const {
    Partial partial;
    each([&](const Kept& kept) { add(partial, kept); });
    return finish(row, total(row, group, partial));
  }

  __device__ void add(Partial& partial, const Kept& kept) const {
    C y[kPack<T>], g[kPack<T>];
    unpack<T>(kept.g, g);
    if constexpr (!kLog) {
      unpack<T>(kept.y, y);
    }
    C sum = 0;
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      sum += kLog ? g[i] : y[i] * g[i];
    }
    partial.sum.add(sum);
  }

  template <typename Group>
  __device__ Summary total(const Row&, const Group& group, const Partial& partial) const {
    return group.template total<Backward>(merge(group.lanes(), {partial.sum.value()}));
  }

  __device__ Result finish(const Row&, const Summary& total) const {
    const bool finite = total.sum - total.sum == C(0);
    return {total.sum, Mask::kRules && (mask.fills() || !finite)};
  }

  __device__ void prepare(Kept&, const Result&) const {}

  __device__ void write(const Row& row, int pack, const Kept& kept, const Result& result) const {
    C values[kPack<T>];
    if (row.layout.read(pack)) {
      C y[kPack<T>], g[kPack<T>];
      unpack<T>(kept.y, y);
      unpack<T>(kept.g, g);
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) {
        values[i] =
            kLog ? g[i] - exponential<T>(y[i]) * result.sum : y[i] * (g[i] - result.sum) * scale;
      }
      if (Mask::kRules && result.check_mask) {
#pragma unroll
        for (int i = 0; i < kPack<T>; ++i) {
          const int64_t key = row.layout.column(pack) + i;
          if (!in_interval(row, key) || mask.hides(row.interval, key)) {
            values[i] = C(0);
          }
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) {
        values[i] = C(0);
      }
    }
    store_pack(row.dx, row.layout, pack, result_alike, pack_bits<T>(values));
  }

 private:
  static uintptr_t place(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16; }

  __device__ static bool in_interval(const Row& row, int64_t key) {
    return key >= row.interval.begin && key < row.interval.end;
  }

  template <typename Keeps>
  __device__ static void zero(uint4& bits, const Keeps& keeps) {
    if constexpr (sizeof(T) == 2) {
      bits.x &= halves(keeps, 0);
      bits.y &= halves(keeps, 2);
      bits.z &= halves(keeps, 4);
      bits.w &= halves(keeps, 6);
    } else if constexpr (sizeof(T) == 4) {
      bits.x = keeps(0) ? bits.x : 0;
      bits.y = keeps(1) ? bits.y : 0;
      bits.z = keeps(2) ? bits.z : 0;
      bits.w = keeps(3) ? bits.w : 0;
    } else {
      bits.x = keeps(0) ? bits.x : 0;
      bits.y = keeps(0) ? bits.y : 0;
      bits.z = keeps(1) ? bits.z : 0;
      bits.w = keeps(1) ? bits.w : 0;
    }
  }
  template <typename Keeps>
  __device__ static unsigned halves(const Keeps& keeps, int i) {
    return (keeps(i) ? 0x0000ffffu : 0) | (keeps(i + 1) ? 0xffff0000u : 0);
  }
};

}  // namespace warpfuse::cuda
