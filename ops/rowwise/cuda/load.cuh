#pragma once

#include "rowwise/cuda/mask.cuh"
#include "rowwise/cuda/pack.cuh"

namespace warpfuse::cuda {

/// A Load functor reads one pack of a row as scores, -inf outside the row.

/// Scores as they are.
template <typename T>
struct PlainLoad {
  using Element = T;
  using Mask = NoMask;
  const T* input;  // [rows, columns]
  NoMask mask;

  __device__ void load(const T* row, const PackedRow<T>& layout, const NoMask::Row& interval,
                       int pack, Compute<T> (&values)[kPack<T>], bool&) const {
    load_pack(row, layout.column(pack), layout.full(pack), interval.begin, interval.end,
              lowest<Compute<T>>(), values);
  }
};

/// Scores times scale, with the mask.
template <typename T, bool kTensor>
struct MaskedLoad {
  using Element = T;
  using Mask = KeyMask<T, kTensor>;
  const T* input;  // [rows, columns]
  Mask mask;
  Compute<T> scale;

  __device__ void load(const T* row, const PackedRow<T>& layout, const typename Mask::Row& interval,
                       int pack, Compute<T> (&values)[kPack<T>], bool& visible) const {
    const int64_t column = layout.column(pack);
    const bool full = layout.full(pack);
    load_pack(row, column, full, interval.begin, interval.end, Compute<T>(0), values);
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      const int64_t key = column + i;
      values[i] = full || (key >= interval.begin && key < interval.end)
                      ? mask.apply(interval, key, values[i] * scale, visible)
                      : lowest<Compute<T>>();
    }
  }
};

}  // namespace warpfuse::cuda
