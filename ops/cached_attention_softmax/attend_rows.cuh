#pragma once

#include "cached_attention_softmax/cached_attention_softmax.h"
#include "common/launch_chain.cuh"
#include "rowwise/cuda/pack.cuh"

namespace warpfuse::cuda {

// Attention of one query per block or cluster: its warps share the visible slots.

inline constexpr int kLog2AttendWarps = 3, kAttendWarps = 1 << kLog2AttendWarps;
inline constexpr int kSlotsAhead = 4;  // whose keys and values a group of lanes has in flight

/// The slots that a query sees: [first, last).
struct VisibleSlots {
  int first, last;

  __device__ VisibleSlots(const CachedAttentionArguments& a, int64_t position)
      : last(static_cast<int>(max(min(position + 1, a.slots), int64_t{0}))) {
    first = a.window > 0 && position >= a.window
                ? static_cast<int>(min(position - a.window + 1, a.slots))
                : 0;
  }
};

__device__ __forceinline__ int64_t load_position(const Positions& positions, int64_t batch,
                                                 int64_t token) {
  const int64_t i = batch * positions.batch_stride + token * positions.token_stride;
  return positions.is_int64 ? static_cast<const volatile int64_t*>(positions.data)[i]
                            : static_cast<const volatile int32_t*>(positions.data)[i];
}

template <typename T, typename Pointer>
__device__ __forceinline__ auto* row_of(const HeadRows<Pointer>& rows, int64_t batch, int64_t head,
                                        int64_t row) {
  using Element = std::conditional_t<std::is_const_v<std::remove_pointer_t<Pointer>>, const T, T>;
  return static_cast<Element*>(rows.data) + batch * rows.batch_stride + head * rows.head_stride +
         row * rows.row_stride;
}

/// Loads pack `pack` of a row of `elements`, zeros where it is not wanted or the row has ended.
template <typename T, bool kAligned>
__device__ __forceinline__ uint4 load_pack(const T* row, int pack, int elements, bool wanted) {
  uint4 bits = {};
  if constexpr (kAligned) {
    load_16_bytes_if(wanted && pack * kPack<T> < elements, row + pack * kPack<T>, bits);
  } else {
    T values[kPack<T>] = {};
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      if (wanted && pack * kPack<T> + i < elements) {
        values[i] = row[pack * kPack<T> + i];
      }
    }
    memcpy(&bits, values, sizeof(bits));
  }
  return bits;
}

/// The same to shared memory; asynchronous where packs are aligned.
template <typename T, bool kAligned>
__device__ __forceinline__ void copy_pack(uint4& to, const T* row, int pack, int elements,
                                          bool wanted) {
  if constexpr (kAligned) {
    copy_16_bytes_or_zeros(shared_address(&to), row + pack * kPack<T>,
                           wanted && pack * kPack<T> < elements);
  } else {
    to = load_pack<T, false>(row, pack, elements, wanted);
  }
}

template <typename T, bool kAligned>
__device__ __forceinline__ void store_pack(T* row, int pack, int elements, const uint4& bits) {
  if constexpr (kAligned) {
    if (pack * kPack<T> < elements) {
      store_16_bytes(row + pack * kPack<T>, bits);
    }
  } else {
    T values[kPack<T>];
    memcpy(values, &bits, sizeof(bits));
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      if (pack * kPack<T> + i < elements) {
        row[pack * kPack<T> + i] = values[i];
      }
    }
  }
}

/// Softmax of some slots' scores, and the sum of their values weighted by it, as a lane has them:
/// its pack of the head.
template <typename T>
struct Attended {
  float max = -INFINITY;
  float sum = 0;                // of exponentials relative to max
  float values[kPack<T>] = {};  // likewise

  /// exp(max - of), 0 for nothing.
  __device__ __forceinline__ static float factor(float max, float of) {
    return max == -INFINITY ? 0.0f : exp2f((max - of) * kLog2E);
  }

  __device__ __forceinline__ void scale_to(float other_max) {
    const float by = factor(max, other_max);
    max = other_max;
    sum *= by;
#pragma unroll
    for (float& value : values) {
      value *= by;
    }
  }

  /// `score` is -inf where the slot is hidden; its value is 0 then.
  __device__ __forceinline__ void add(float score, const uint4& value_bits) {
    const float weight = score == -INFINITY ? 0.0f : exp2f((score - max) * kLog2E);
    float value[kPack<T>];
    unpack<T>(value_bits, value);
    sum += weight;
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      values[i] = fmaf(weight, value[i], values[i]);
    }
  }

  /// Adds up the lanes `offset` apart.
  __device__ __forceinline__ void join_lanes(int offset) {
    scale_to(larger(max, __shfl_xor_sync(~0u, max, offset)));
    sum += __shfl_xor_sync(~0u, sum, offset);
#pragma unroll
    for (float& value : values) {
      value += __shfl_xor_sync(~0u, value, offset);
    }
  }
};

/// Softmax and weighted sum of a part of the slots, for all elements of a head.
struct AttendedPartial {
  float max, sum;
  float values[256];  // [head_dim]
};

/// An element of the result over `count` parts.
struct AttendedElement {
  float max = -INFINITY, sum = 0, value = 0;

  template <typename PartialOf>
  __device__ __forceinline__ AttendedElement(const PartialOf& partial, int count, int element) {
    for (int i = 0; i < count; ++i) {
      max = larger(max, partial(i)->max);
    }
    for (int i = 0; i < count; ++i) {
      const float by = Attended<float>::factor(partial(i)->max, max);
      sum = fmaf(partial(i)->sum, by, sum);
      value = fmaf(partial(i)->values[element], by, value);
    }
  }
};

}  // namespace warpfuse::cuda
