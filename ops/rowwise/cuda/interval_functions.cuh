#pragma once

#include <type_traits>

#include "rowwise/cuda/group.cuh"
#include "rowwise/cuda/memory.cuh"
#include "rowwise/cuda/pack.cuh"
#include "rowwise/cuda/pdl.cuh"

namespace warpfuse::cuda {

// What a row of attention's softmax computes of its visible packs, for the tier span (span.cuh):
// no element is asked whether it is visible, since hidden ones come in as kHidden and are written
// as zeros whatever result() makes of them.

/// softmax(scores * scale) for a positive scale, of dtypes of at most four bytes.
template <typename T_>
struct IntervalForward {
  using T = T_;

  struct RawPack {
    uint4 x;
  };
  static constexpr unsigned kHidden = sizeof(T) == 4              ? 0xff800000u
                                      : std::is_same_v<T, __half> ? 0xfc00fc00u
                                                                  : 0xff80ff80u;  // -inf
  /// Exponentials.
  template <int kSlots>
  struct Fragment {
    float value[kSlots][kPack<T>];
  };
  struct Summary {
    float max;
    float sum;  // of exp(x - max)
  };
  struct Result {
    float factor;
  };

  const T* input;
  T* output;
  float scale;

  __device__ void prefetch(int64_t at, int64_t elements) const {
    prefetch_bytes(input + at, elements * static_cast<int64_t>(sizeof(T)));
  }
  __device__ void load(int64_t at, bool visible, RawPack& bits) const {
    load_16_bytes_if(visible, input + at, bits.x);
  }

  template <typename Hide>
  __device__ static void hide(RawPack& bits, const Hide& hide) {
    hide(bits.x, kHidden);
  }

  template <int kSlots, typename Group>
  __device__ Result reduce(const RawPack (&bits)[kSlots], Fragment<kSlots>& kept,
                           Group& group) const {
    const float raw_max = group.lanes().max(max_of(bits));
    const float max = raw_max * scale;
    const float of_lane = is_tame(raw_max) ? tame_exponentials(bits, raw_max, kept)
                                           : exponentials(bits, raw_max, kept);
    const Summary total = group.total(*this, {max, group.lanes().sum(of_lane)});
    const float factor = 1.0f / total.sum;
    return {max == total.max ? factor : factor * rescale_factor<T>(max - total.max)};
  }

  template <int kSlots>
  __device__ uint4 result(const Fragment<kSlots>& kept, int slot, const Result& result) const {
    float values[kPack<T>];
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      values[i] = kept.value[slot][i] * result.factor;
    }
    return pack_bits<T>(values);
  }

  __device__ static Summary nothing() { return {negative_infinity<float>(), 0.0f}; }
  __device__ static Summary merge(const Warp& lanes, const Summary& of_lane) {
    const float max = lanes.max(of_lane.max);
    return {max,
            lanes.sum(of_lane.max == max ? of_lane.sum
                                         : of_lane.sum * rescale_factor<T>(of_lane.max - max))};
  }

 private:
  /// The scale is positive, so the largest score is the largest before it too.
  template <int kSlots>
  __device__ static float max_of(const RawPack (&bits)[kSlots]) {
    if constexpr (sizeof(T) == 2) {
      using Pair = PairOf<T>;
      Pair max;
#pragma unroll
      for (int slot = 0; slot < kSlots; ++slot) {
        Pair pairs[4];
        memcpy(pairs, &bits[slot], sizeof(pairs));
        const Pair of_pack = __hmax2(__hmax2(pairs[0], pairs[1]), __hmax2(pairs[2], pairs[3]));
        max = slot == 0 ? of_pack : __hmax2(max, of_pack);
      }
      return larger(to_compute(max.x), to_compute(max.y));
    } else {
      float max = negative_infinity<float>();
#pragma unroll
      for (int slot = 0; slot < kSlots; ++slot) {
        float x[kPack<T>];
        unpack<T>(bits[slot].x, x);
#pragma unroll
        for (int i = 0; i < kPack<T>; ++i) {
          max = larger(max, x[i]);
        }
      }
      return max;
    }
  }

  /// Whether exponents of base 2 may come from one multiply-add, x * c + (24 - max * c). Its one
  /// rounding is that of a small number. The constant's is half a unit of max * c, below 2^-17:
  /// that much the sums of warps may be at odds, within a warp all elements share it.
  __device__ bool is_tame(float raw_max) const {
    return sizeof(T) == 2 && fabsf(raw_max * (scale * kLog2E)) < 256.0f;
  }

  template <int kSlots>
  __device__ float tame_exponentials(const RawPack (&bits)[kSlots], float raw_max,
                                     Fragment<kSlots>& kept) const {
    const float factor = scale * kLog2E, constant = 24.0f - raw_max * factor;
    return each(bits, kept, [&](float x) { return fast_exp2(fmaf(x, factor, constant)); });
  }

  /// As Forward has them, for scores of any size. Each product is rounded before the maximum is
  /// taken off: that of the maximum itself gives exactly 0.
  template <int kSlots>
  __device__ float exponentials(const RawPack (&bits)[kSlots], float raw_max,
                                Fragment<kSlots>& kept) const {
    const float base = raw_max == negative_infinity<float>() ? 0.0f : __fmul_rn(raw_max, scale);
    return each(bits, kept, [&](float x) { return exponential<T>(__fmul_rn(x, scale) - base); });
  }

  /// kept = f(x); returns their sum.
  template <int kSlots, typename F>
  __device__ static float each(const RawPack (&bits)[kSlots], Fragment<kSlots>& kept, const F& f) {
    float sum = 0.0f;
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      float (&value)[kPack<T>] = kept.value[slot];
      unpack<T>(bits[slot].x, value);
      float of_pack = 0.0f;
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) {
        value[i] = f(value[i]);
        of_pack += value[i];
      }
      sum += of_pack;
    }
    return sum;
  }

  static constexpr float kLog2E = 1.4426950408889634f;
};

/// The gradient scale * y * (g - sum(y * g)).
template <typename T_>
struct IntervalBackward {
  using T = T_;

  struct RawPack {
    uint4 y, g;
  };
  template <int kSlots>
  struct Fragment {
    RawPack bits[kSlots];
  };
  struct Summary {
    float sum;
  };
  using Result = Summary;
  static constexpr unsigned kHidden = 0;

  const T* input;  // the forward's output
  const T* grad_output;
  T* output;  // the scores' gradient
  float scale;

  __device__ void prefetch(int64_t at, int64_t elements) const {
    prefetch_bytes(input + at, elements * static_cast<int64_t>(sizeof(T)));
    prefetch_bytes(grad_output + at, elements * static_cast<int64_t>(sizeof(T)));
  }
  __device__ void load(int64_t at, bool visible, RawPack& bits) const {
    load_16_bytes_if(visible, input + at, bits.y);
    load_16_bytes_if(visible, grad_output + at, bits.g);
  }

  template <typename Hide>
  __device__ static void hide(RawPack& bits, const Hide& hide) {
    hide(bits.y, kHidden);
    hide(bits.g, kHidden);
  }

  template <int kSlots, typename Group>
  __device__ Result reduce(const RawPack (&bits)[kSlots], Fragment<kSlots>& kept,
                           Group& group) const {
    float sum = 0.0f;
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      kept.bits[slot] = bits[slot];
      float y[kPack<T>], g[kPack<T>];
      unpack<T>(bits[slot].y, y);
      unpack<T>(bits[slot].g, g);
      float of_pack = 0.0f;
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) {
        of_pack += y[i] * g[i];
      }
      sum += of_pack;
    }
    return group.total(*this, {group.lanes().sum(sum)});
  }

  template <int kSlots>
  __device__ uint4 result(const Fragment<kSlots>& kept, int slot, const Result& result) const {
    RawPack bits = kept.bits[slot];
    block_rematerialization(bits.y);
    block_rematerialization(bits.g);
    float y[kPack<T>], g[kPack<T>], values[kPack<T>];
    unpack<T>(bits.y, y);
    unpack<T>(bits.g, g);
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      values[i] = y[i] * (g[i] - result.sum) * scale;
    }
    return pack_bits<T>(values);
  }

  __device__ static Summary nothing() { return {0.0f}; }
  __device__ static Summary merge(const LaneGroup& lanes, const Summary& of_lane) {
    return {lanes.sum(of_lane.sum)};
  }
};

}  // namespace warpfuse::cuda
