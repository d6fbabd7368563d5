#pragma once

#include <cstdint>

#include "rowwise/cuda/types.cuh"

namespace warpfuse::cuda {

/// Elements in 16 bytes.
template <typename T>
constexpr int kPack = 16 / static_cast<int>(sizeof(T));

/// 16 bytes that move by one access; a struct of half-precision elements alone would be copied
/// element by element.
template <typename T>
union Pack {
  uint4 bits;
  T element[kPack<T>];

  __device__ Pack() {}
};

/// Where a row's 16-byte packs lie. A row may start anywhere: pack 0 holds its first element, at
/// place `shift`, and packs of a row are aligned in memory, so that all but its two ends move by
/// one 16-byte access. Columns [begin, end) are to be read; pack p holds columns p * kPack - shift
/// on.
template <typename T>
struct PackedRow {
  int shift;                  // elements between the 16-byte boundary and the row's first element
  int packs;                  // that the whole row touches
  int first, last;            // packs that [begin, end) touches
  int full_first, full_last;  // packs that lie in [begin, end) entirely

  __device__ PackedRow(const T* row, int64_t columns, int64_t begin, int64_t end) {
    shift = static_cast<int>(reinterpret_cast<uintptr_t>(row) / sizeof(T) % kPack<T>);
    packs = static_cast<int>((columns + shift + kPack<T> - 1) / kPack<T>);
    first = static_cast<int>((begin + shift) / kPack<T>);
    last = begin < end ? static_cast<int>((end + shift + kPack<T> - 1) / kPack<T>) : first;
    full_first = static_cast<int>((begin + shift + kPack<T> - 1) / kPack<T>);
    full_last = static_cast<int>((end + shift) / kPack<T>);
  }

  __device__ int64_t column(int pack) const {
    return static_cast<int64_t>(pack) * kPack<T> - shift;
  }
  __device__ bool read(int pack) const { return pack >= first && pack < last; }
  __device__ bool full(int pack) const { return pack >= full_first && pack < full_last; }
};

template <typename T>
__device__ __forceinline__ bool is_aligned(const T* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

/// values = row[column, column + kPack), converted; `fill` outside [begin, end).
template <typename T>
__device__ __forceinline__ void load_pack(const T* row, int64_t column, bool full, int64_t begin,
                                          int64_t end, Compute<T> fill,
                                          Compute<T> (&values)[kPack<T>]) {
  if (full && is_aligned(row + column)) {
    Pack<T> pack;
    pack.bits = *reinterpret_cast<const uint4*>(row + column);
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      values[i] = to_compute(pack.element[i]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      const int64_t c = column + i;
      values[i] = c >= begin && c < end ? to_compute(row[c]) : fill;
    }
  }
}

/// row[column, column + kPack) = values, as far as it lies in [0, columns).
template <typename T>
__device__ __forceinline__ void store_pack(T* row, int64_t column, int64_t columns,
                                           const Compute<T> (&values)[kPack<T>]) {
  if (column >= 0 && column + kPack<T> <= columns && is_aligned(row + column)) {
    Pack<T> pack;
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      pack.element[i] = from_compute<T>(values[i]);
    }
    __stwb(reinterpret_cast<uint4*>(row + column), pack.bits);  // a plain store would be split
  } else {
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      const int64_t c = column + i;
      if (c >= 0 && c < columns) {
        row[c] = from_compute<T>(values[i]);
      }
    }
  }
}

}  // namespace warpfuse::cuda
