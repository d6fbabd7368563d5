#pragma once

#include <cstdint>

#include "rowwise/cuda/memory.cuh"
#include "rowwise/cuda/types.cuh"

namespace warpfuse::cuda {

/// Elements in 16 bytes.
template <typename T>
constexpr int kPack = 16 / static_cast<int>(sizeof(T));

/// The 16 bytes of a pack as elements.
template <typename T>
union Pack {
  uint4 bits;
  T element[kPack<T>];

  __device__ Pack() {}
};

// --- bits <-> values --------------------------------------------------------------------------

__device__ __forceinline__ void unpack_word(unsigned word, float* values, __half) {
  __half2 pair;
  memcpy(&pair, &word, sizeof(word));
  const float2 both = __half22float2(pair);
  values[0] = both.x;
  values[1] = both.y;
}
__device__ __forceinline__ void unpack_word(unsigned word, float* values, __nv_bfloat16) {
  values[0] = __uint_as_float(word << 16);  // a bfloat16 is the upper half of a float
  values[1] = __uint_as_float(word & 0xffff0000u);
}
__device__ __forceinline__ unsigned pack_word(const float* values, __half) {
  const __half2 pair = __floats2half2_rn(values[0], values[1]);
  unsigned word;
  memcpy(&word, &pair, sizeof(word));
  return word;
}
__device__ __forceinline__ unsigned pack_word(const float* values, __nv_bfloat16) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(values[0], values[1]);
  unsigned word;
  memcpy(&word, &pair, sizeof(word));
  return word;
}

template <typename T>
__device__ __forceinline__ void unpack(const uint4& bits, Compute<T> (&values)[kPack<T>]) {
  if constexpr (sizeof(T) == 2) {
    unpack_word(bits.x, values, T());
    unpack_word(bits.y, values + 2, T());
    unpack_word(bits.z, values + 4, T());
    unpack_word(bits.w, values + 6, T());
  } else {
    Pack<T> pack;
    pack.bits = bits;
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      values[i] = pack.element[i];
    }
  }
}

/// The bits of the values, each rounded once.
template <typename T>
__device__ __forceinline__ uint4 pack_bits(const Compute<T> (&values)[kPack<T>]) {
  if constexpr (sizeof(T) == 2) {
    return {pack_word(values, T()), pack_word(values + 2, T()), pack_word(values + 4, T()),
            pack_word(values + 6, T())};
  } else {
    Pack<T> pack;
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      pack.element[i] = values[i];
    }
    return pack.bits;
  }
}

// --- where packs lie --------------------------------------------------------------------------

/// A row's 16-byte packs. A row may start anywhere: pack 0 holds its first element, at place
/// `shift`, and packs are aligned in memory, so that all but the row's two ends are written by one
/// access. Columns [begin, end) are to be read; pack p holds columns p * kPack - shift on.
template <typename T>
struct PackedRow {
  int shift;                    // elements between the 16-byte boundary and the row's first element
  int packs;                    // that the whole row touches
  int first, last;              // packs that [begin, end) touches
  int full_first, full_last;    // packs that lie in [begin, end) entirely
  int whole_first, whole_last;  // of first..last those that may be read by one access
  int inner_first, inner_last;  // packs all of whose elements are columns
  int64_t columns;

  /// `before` and `after` are the elements of the tensor before the row and from its start on: an
  /// access may reach into neighbouring rows, but not out of the tensor.
  __device__ PackedRow(const T* row, int64_t columns, int64_t begin, int64_t end, int64_t before,
                       int64_t after)
      : columns(columns) {
    shift = static_cast<int>(reinterpret_cast<uintptr_t>(row) / sizeof(T) % kPack<T>);
    packs = static_cast<int>((columns + shift + kPack<T> - 1) / kPack<T>);
    first = static_cast<int>((begin + shift) / kPack<T>);
    last = begin < end ? static_cast<int>((end + shift + kPack<T> - 1) / kPack<T>) : first;
    full_first = static_cast<int>((begin + shift + kPack<T> - 1) / kPack<T>);
    full_last = static_cast<int>((end + shift) / kPack<T>);
    inner_first = shift > 0 ? 1 : 0;
    inner_last = static_cast<int>((columns + shift) / kPack<T>);
    whole_first = first == 0 && shift > before ? 1 : first;
    whole_last = last == packs && column(packs) > after ? packs - 1 : last;
  }

  /// Makes it a row without packs.
  __device__ void clear() { packs = first = last = whole_first = whole_last = 0; }

  __device__ int64_t column(int pack) const {
    return static_cast<int64_t>(pack) * kPack<T> - shift;
  }
  /// The 16-byte boundary of a pack of a tensor whose row starts at `row`, at the same shift.
  __device__ const void* address(const T* row, int pack) const { return row + column(pack); }

  __device__ bool read(int pack) const { return pack >= first && pack < last; }
  __device__ bool full(int pack) const { return pack >= full_first && pack < full_last; }
  __device__ bool whole(int pack) const { return pack >= whole_first && pack < whole_last; }
  /// Some pack is to be read that may not be by one access.
  __device__ bool ragged() const { return whole_first != first || whole_last != last; }
  __device__ bool inner(int pack) const { return pack >= inner_first && pack < inner_last; }
};

/// The bits of row[column, column + kPack) as far as they lie in [begin, end), one by one; zeros
/// elsewhere.
template <typename T>
__device__ __forceinline__ uint4 gather_pack(const T* row, int64_t column, int64_t begin,
                                             int64_t end) {
  Pack<T> pack;
  pack.bits = uint4{0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) {
    if (column + i >= begin && column + i < end) {
      pack.element[i] = row[column + i];
    }
  }
  return pack.bits;
}

/// Stores the bits [from, to) of a pack to its place, `at`, in pieces of halves; from and to are
/// elements. kCount elements from kOffset on are looked at.
template <typename T, int kOffset = 0, int kCount = kPack<T>>
__device__ __forceinline__ void store_part(T* at, const Pack<T>& pack, int from, int to) {
  if (from >= kOffset + kCount || to <= kOffset) {
    return;
  }
  if constexpr (kCount == 1) {
    at[kOffset] = pack.element[kOffset];
  } else {
    if (kCount * sizeof(T) <= 8 && from <= kOffset && to >= kOffset + kCount) {
      if constexpr (kCount * sizeof(T) == 8) {
        *reinterpret_cast<uint2*>(at + kOffset) =
            kOffset == 0 ? uint2{pack.bits.x, pack.bits.y} : uint2{pack.bits.z, pack.bits.w};
      } else if constexpr (kCount * sizeof(T) == 4) {
        constexpr int kWord = kOffset * static_cast<int>(sizeof(T)) / 4;
        *reinterpret_cast<unsigned*>(at + kOffset) = kWord == 0   ? pack.bits.x
                                                     : kWord == 1 ? pack.bits.y
                                                     : kWord == 2 ? pack.bits.z
                                                                  : pack.bits.w;
      }
      return;
    }
    store_part<T, kOffset, kCount / 2>(at, pack, from, to);
    store_part<T, kOffset + kCount / 2, kCount / 2>(at, pack, from, to);
  }
}

/// row[column, column + kPack) = bits, as far as these are columns. aligned: packs of this tensor
/// lie on 16-byte boundaries.
template <typename T>
__device__ __forceinline__ void store_pack(T* row, const PackedRow<T>& layout, int pack,
                                           bool aligned, const uint4& bits) {
  T* at = row + layout.column(pack);
  if (aligned && layout.inner(pack)) {
    store_16_bytes(at, bits);
    return;
  }
  Pack<T> parts;
  parts.bits = bits;
  const int64_t column = layout.column(pack);
  const int from = column < 0 ? static_cast<int>(-column) : 0;
  const int to =
      column + kPack<T> > layout.columns ? static_cast<int>(layout.columns - column) : kPack<T>;
  if (aligned) {
    store_part(at, parts, from, to);
  } else {
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      if (i >= from && i < to) {
        at[i] = parts.element[i];
      }
    }
  }
}

}  // namespace warpfuse::cuda
