#pragma once

#include <climits>
#include <cstdint>

#include "rowwise/cuda/math.cuh"
#include "rowwise/cuda/memory.cuh"
#include "rowwise/tuning.h"

namespace warpfuse::cuda {

/// Elements of a pack, the 16 bytes of one vectorised access.
template <typename T>
constexpr int kPack = 16 / static_cast<int>(sizeof(T));

/// Elements of a row that lie in none of its packs: at most kPack - 1 at each end.
template <typename T>
constexpr int kMaxEdges = 2 * (kPack<T> - 1);

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

/// -inf in each element of a word; of a double, in its only one.
__host__ __device__ constexpr unsigned empty_word(__half) { return 0xfc00fc00u; }
__host__ __device__ constexpr unsigned empty_word(__nv_bfloat16) { return 0xff80ff80u; }
__host__ __device__ constexpr unsigned empty_word(float) { return 0xff800000u; }
__host__ __device__ constexpr unsigned long long empty_word(double) { return 0xfff0000000000000u; }

template <typename T>
__device__ __forceinline__ void unpack(const uint4& bits, Compute<T> (&values)[kPack<T>]) {
  if constexpr (sizeof(T) == 2) {
    unpack_word(bits.x, values, T());
    unpack_word(bits.y, values + 2, T());
    unpack_word(bits.z, values + 4, T());
    unpack_word(bits.w, values + 6, T());
  } else {
    memcpy(values, &bits, sizeof(bits));
  }
}

/// Rounds each value once to T.
template <typename T>
__device__ __forceinline__ uint4 pack_bits(const Compute<T> (&values)[kPack<T>]) {
  if constexpr (sizeof(T) == 2) {
    return {pack_word(values, T()), pack_word(values + 2, T()), pack_word(values + 4, T()),
            pack_word(values + 6, T())};
  } else {
    uint4 bits;
    memcpy(&bits, values, sizeof(bits));
    return bits;
  }
}

/// The largest value of a half precision pack, by packed instructions.
template <typename T>
__device__ __forceinline__ PairOf<T> max_pair(const uint4& bits) {
  PairOf<T> pairs[4];
  memcpy(pairs, &bits, sizeof(bits));
  return __hmax2(__hmax2(pairs[0], pairs[1]), __hmax2(pairs[2], pairs[3]));
}
template <typename Pair>
__device__ __forceinline__ float max_of_pair(const Pair& pair) {
  return larger(to_compute(pair.x), to_compute(pair.y));
}

// --- parts of a pack --------------------------------------------------------------------------

/// Zeros the elements i of a pack for which keep(i) is false.
template <typename T, typename Keep>
__device__ __forceinline__ void zero_elements(uint4& bits, const Keep& keep) {
  unsigned words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    if constexpr (sizeof(T) == 2) {
      words[word] &= (keep(2 * word) ? 0x0000ffffu : 0) | (keep(2 * word + 1) ? 0xffff0000u : 0);
    } else {
      words[word] = keep(word * 4 / static_cast<int>(sizeof(T))) ? words[word] : 0;
    }
  }
  bits = {words[0], words[1], words[2], words[3]};
}

/// Selects the first `elements` elements of a pack, clamped to [0, kPack]: the visible interval of
/// a row begins or ends inside a pack.
template <typename T>
class PackMask {
 public:
  __device__ explicit PackMask(int elements)
      : first_{bits(elements, 0), bits(elements, 1), bits(elements, 2), bits(elements, 3)} {}

  /// Replaces the words of all other elements by `other`.
  __device__ void keep_first(uint4& pack, unsigned other) const { mix(pack, first_, other); }
  /// Replaces the words of the first elements by `other`.
  __device__ void keep_rest(uint4& pack, unsigned other) const {
    mix(pack, {~first_.x, ~first_.y, ~first_.z, ~first_.w}, other);
  }

 private:
  __device__ static unsigned bits(int elements, int word) {
    unsigned mask;  // low bits, clamped to 32
    asm("bmsk.clamp.b32 %0, 0, %1;"
        : "=r"(mask)
        : "r"(max(elements * 8 * static_cast<int>(sizeof(T)) - 32 * word, 0)));
    return mask;
  }
  __device__ static void mix(uint4& pack, const uint4& kept, unsigned other) {
    pack.x = (pack.x & kept.x) | (other & ~kept.x);
    pack.y = (pack.y & kept.y) | (other & ~kept.y);
    pack.z = (pack.z & kept.z) | (other & ~kept.z);
    pack.w = (pack.w & kept.w) | (other & ~kept.w);
  }

  uint4 first_;
};

// --- where packs lie --------------------------------------------------------------------------

/// Elements from a 16-byte boundary to `address`.
template <typename T>
__host__ __device__ constexpr int pack_shift(uintptr_t address) {
  return static_cast<int>(address / sizeof(T) % kPack<T>);
}
// Not of the address cut to 32 bits, whose remainder may be negative.
static_assert(pack_shift<__half>(0x1'8000'0002) == 1 && pack_shift<float>(0x3'8000'0004) == 1);
template <typename T>
__device__ __forceinline__ int pack_shift(const T* pointer) {
  return pack_shift<T>(reinterpret_cast<uintptr_t>(pointer));
}

/// Whether the packs of a row, and of a batch behind its end, can be counted in 32 bits: those of
/// 16 GiB.
template <typename T>
constexpr bool fits_packs(int64_t columns) {
  return columns / kPack<T> <= INT_MAX / 2;
}

/// A row as packs, aligned in memory wherever the row starts, and edges, the elements of its head
/// and tail that no pack holds.
template <typename T>
struct PackedRow {
  int head;                           // edges before the first pack
  int edges;                          // head and tail
  int packs = 0;                      // of the row
  int line = 0;                       // from the start of a 128-byte cache line to the first pack
  int first = 0, last = 0;            // the packs [first, last) are read
  int full_first = 0, full_last = 0;  // all elements of the packs [full_first, full_last) are read

  /// All of the row is read.
  __device__ PackedRow(const T* row, int64_t columns) {
    const int shift = pack_shift(row);
    head = static_cast<int>(min(columns, static_cast<int64_t>((kPack<T> - shift) % kPack<T>)));
    packs = static_cast<int>((columns - head) / kPack<T>);
    edges = static_cast<int>(columns - static_cast<int64_t>(packs) * kPack<T>);
    line = static_cast<int>(reinterpret_cast<uintptr_t>(row + head) / 16 % kLinePacks);
    last = full_last = packs;
  }

  /// No packs: all elements are edges.
  __device__ explicit PackedRow(int64_t columns) : head(static_cast<int>(columns)), edges(head) {}

  /// Columns [begin, end) are read.
  __device__ PackedRow(const T* row, int64_t columns, int64_t begin, int64_t end)
      : PackedRow(row, columns) {
    first = clamped_pack(begin);
    last = begin < end ? clamped_pack(end + kPack<T> - 1) : first;
    full_first = clamped_pack(begin + kPack<T> - 1);
    full_last = clamped_pack(end);
  }

  /// Makes it a row without elements.
  __device__ void clear() { edges = packs = first = last = 0; }

  __device__ int64_t column(int pack) const { return head + static_cast<int64_t>(pack) * kPack<T>; }
  __device__ int64_t edge_column(int edge) const {
    return edge < head ? edge : edge + static_cast<int64_t>(packs) * kPack<T>;
  }
  __device__ bool read(int pack) const { return pack >= first && pack < last; }
  __device__ bool full(int pack) const { return pack >= full_first && pack < full_last; }

 private:
  /// The pack of a column, clamped to [0, packs].
  __device__ int clamped_pack(int64_t column) const {
    constexpr int kShift = kPack<T> == 8 ? 3 : kPack<T> == 4 ? 2 : 1;
    return min(max(static_cast<int>((column - head) >> kShift), 0), packs);
  }
};

/// Whether rows `stride` elements apart all start at a pack.
template <typename T>
__host__ __device__ inline bool is_aligned(const T* rows, int64_t stride) {
  return reinterpret_cast<uintptr_t>(rows) % 16 == 0 && stride % kPack<T> == 0;
}

/// Whether each row of `a` starts at the same offset from a 16-byte boundary as that of `b`, for
/// rows `stride_a` and `stride_b` elements apart.
template <typename T>
__host__ __device__ inline bool same_alignment(const T* a, int64_t stride_a, const T* b,
                                               int64_t stride_b) {
  return reinterpret_cast<uintptr_t>(a) % 16 == reinterpret_cast<uintptr_t>(b) % 16 &&
         (stride_a - stride_b) % kPack<T> == 0;
}

/// Whether all begin at a word of four bytes.
template <typename... T>
bool are_at_words(const T*... rows) {
  return (... && (reinterpret_cast<uintptr_t>(rows) % sizeof(unsigned) == 0));
}

template <typename T>
__device__ __forceinline__ uint4 load_unaligned(const T* from) {
  T elements[kPack<T>];
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) {
    elements[i] = from[i];
  }
  uint4 bits;
  memcpy(&bits, elements, sizeof(bits));
  return bits;
}

template <typename T>
__device__ __forceinline__ void store_unaligned(T* to, const uint4& bits) {
  T elements[kPack<T>];
  memcpy(elements, &bits, sizeof(bits));
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) {
    to[i] = elements[i];
  }
}

template <typename T>
__device__ __forceinline__ void store_pack(T* to, const uint4& bits, bool aligned) {
  if (aligned) {
    store_16_bytes(to, bits);
  } else {
    store_unaligned(to, bits);
  }
}

}  // namespace warpfuse::cuda
