#pragma once

#include <type_traits>

#include "rowwise/cuda/backward.cuh"
#include "rowwise/cuda/forward.cuh"
#include "rowwise/cuda/interval.cuh"

namespace warpfuse::cuda {

/// softmax(scores * scale) of the visible keys, for a positive scale and dtypes of at most 4 bytes.
template <typename T_>
struct IntervalForward {
  using T = T_;
  template <int kSlots>
  struct Fragments {
    float exponentials[kSlots][kPack<T>];
  };
  struct Partial {
    float max;
    float sum;  // of exp(x - max)
    __device__ static Partial none() { return {negative_infinity<float>(), 0.0f}; }
  };
  struct Result {
    float factor;
  };
  static constexpr int kInputs = 1;
  static constexpr unsigned kHidden = empty_word(T());

  const T* inputs[1];
  T* output;
  float scale;

  template <int kSlots, typename Group>
  __device__ Result reduce(const RawPack<1> (&raws)[kSlots], Fragments<kSlots>& fragments,
                           Group& group) const {
    const float raw_max = group.lanes().max(max_of(raws));
    const float max = raw_max * scale;
    const float sum = fits_one_fma(raw_max) ? fma_exponentials(raws, raw_max, fragments)
                                            : exponentials(raws, raw_max, fragments);
    const Partial total = group.total(*this, Partial{max, group.lanes().sum(sum)});
    return {rescale<T>(1.0f / total.sum, max, total.max)};
  }

  template <int kSlots>
  __device__ uint4 result(const Fragments<kSlots>& fragments, int slot,
                          const Result& result) const {
    float values[kPack<T>];
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      values[i] = fragments.exponentials[slot][i] * result.factor;
    }
    return pack_bits<T>(values);
  }

  __device__ static Partial merge(const Warp& lanes, const Partial& lane) {
    const float max = lanes.max(lane.max);
    return {max, lanes.sum(rescale<T>(lane.sum, lane.max, max))};
  }

 private:
  /// The maximum before the scale, which is positive.
  template <int kSlots>
  __device__ static float max_of(const RawPack<1> (&raws)[kSlots]) {
    if constexpr (sizeof(T) == 2) {
      PairOf<T> max;
#pragma unroll
      for (int slot = 0; slot < kSlots; ++slot) {
        const PairOf<T> pack_max = max_pair<T>(raws[slot].inputs[0]);
        max = slot == 0 ? pack_max : __hmax2(max, pack_max);
      }
      return max_of_pair(max);
    } else {
      float max = negative_infinity<float>();
#pragma unroll
      for (int slot = 0; slot < kSlots; ++slot) {
        float x[kPack<T>];
        unpack<T>(raws[slot].inputs[0], x);
#pragma unroll
        for (int i = 0; i < kPack<T>; ++i) {
          max = larger(max, x[i]);
        }
      }
      return max;
    }
  }

  /// Whether an exponent of base 2 may be one multiply-add, x * c + (24 - max * c). The
  /// multiply-add rounds a small number. The constant's error, half an ulp of at most 280, is at
  /// most 2^-16: the elements of a warp share it, and the sums of different warps differ by it.
  __device__ bool fits_one_fma(float raw_max) const {
    return sizeof(T) == 2 && fabsf(raw_max * (scale * kLog2E)) < 256.0f;
  }

  template <int kSlots>
  __device__ float fma_exponentials(const RawPack<1> (&raws)[kSlots], float raw_max,
                                    Fragments<kSlots>& fragments) const {
    const float factor = scale * kLog2E, constant = 24.0f - raw_max * factor;
    return transform(raws, fragments,
                     [&](float x) { return fast_exp2(fmaf(x, factor, constant)); });
  }

  /// For scores of any size. Each product is rounded before the maximum is subtracted, so that the
  /// maximum's own difference is exactly 0.
  template <int kSlots>
  __device__ float exponentials(const RawPack<1> (&raws)[kSlots], float raw_max,
                                Fragments<kSlots>& fragments) const {
    const float base = raw_max == negative_infinity<float>() ? 0.0f : __fmul_rn(raw_max, scale);
    return transform(raws, fragments,
                     [&](float x) { return exponential<T>(__fmul_rn(x, scale) - base); });
  }

  /// fragments = f(x); returns their sum.
  template <int kSlots, typename F>
  __device__ static float transform(const RawPack<1> (&raws)[kSlots], Fragments<kSlots>& fragments,
                                    const F& f) {
    float sum = 0.0f;
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      float (&value)[kPack<T>] = fragments.exponentials[slot];
      unpack<T>(raws[slot].inputs[0], value);
      float pack_sum = 0.0f;
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) {
        value[i] = f(value[i]);
        pack_sum += value[i];
      }
      sum += pack_sum;
    }
    return sum;
  }
};

/// The gradient scale * y * (g - sum(y * g)) of the visible keys.
template <typename T_>
struct IntervalBackward : SumReduction<float> {
  using T = T_;
  template <int kSlots>
  struct Fragments {
    RawPack<2> raws[kSlots];
  };
  using Result = Partial;
  static constexpr int kInputs = 2;
  static constexpr unsigned kHidden = 0;

  const T* inputs[2];  // y, the forward pass's output, and g
  T* output;           // the gradient of the scores
  float scale;

  IntervalBackward(const T* y, const T* g, T* output, float scale)
      : inputs{y, g}, output(output), scale(scale) {}

  template <int kSlots, typename Group>
  __device__ Result reduce(const RawPack<2> (&raws)[kSlots], Fragments<kSlots>& fragments,
                           Group& group) const {
    float sum = 0.0f;
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      fragments.raws[slot] = raws[slot];
      float y[kPack<T>], g[kPack<T>];
      unpack<T>(raws[slot].inputs[0], y);
      unpack<T>(raws[slot].inputs[1], g);
      float pack_sum = 0.0f;
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) {
        pack_sum += y[i] * g[i];
      }
      sum += pack_sum;
    }
    return group.total(*this, Partial{group.lanes().sum(sum)});
  }

  template <int kSlots>
  __device__ uint4 result(const Fragments<kSlots>& fragments, int slot,
                          const Result& result) const {
    RawPack<2> raw = fragments.raws[slot];
    block_rematerialization(raw.inputs[0]);
    block_rematerialization(raw.inputs[1]);
    float y[kPack<T>], g[kPack<T>], values[kPack<T>];
    unpack<T>(raw.inputs[0], y);
    unpack<T>(raw.inputs[1], g);
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      values[i] = y[i] * (g[i] - result.sum) * scale;
    }
    return pack_bits<T>(values);
  }
};

// --- which row functions have interval kernels ------------------------------------------------

/// make() is a row function's interval function, and fits() says whether it takes these rows: all
/// of their packs are aligned.
template <typename Function>
struct IntervalTraits {
  static constexpr bool kSupported = false;
  static bool fits(const Function&, int64_t) { return false; }
};

template <typename T>
  requires(sizeof(T) <= 4)
struct IntervalTraits<Forward<ScaledLoad<T, KeyMask<T, false>>, ProbabilityStore<T>>> {
  using Function = Forward<ScaledLoad<T, KeyMask<T, false>>, ProbabilityStore<T>>;
  static constexpr bool kSupported = true;

  static bool fits(const Function& f, int64_t rows) {
    return f.output_aligned && is_aligned(f.input, f.columns) &&
           IntervalOrder::fits(f.load.mask.rules, rows);
  }
  static IntervalForward<T> make(const Function& f) { return {{f.input}, f.output, f.load.scale}; }
  static const KeyRules& rules(const Function& f) { return f.load.mask.rules; }
};

template <typename T>
  requires(sizeof(T) <= 4)
struct IntervalTraits<Backward<T, KeyMask<T, false>, false>> {
  using Function = Backward<T, KeyMask<T, false>, false>;
  static constexpr bool kSupported = true;

  static bool fits(const Function& f, int64_t rows) {
    return f.inputs_aligned && f.output_aligned && is_aligned(f.output, f.columns) &&
           IntervalOrder::fits(f.mask.rules, rows);
  }
  static IntervalBackward<T> make(const Function& f) {
    return {f.output, f.grad_output, f.grad_input, f.scale};
  }
  static const KeyRules& rules(const Function& f) { return f.mask.rules; }
};

}  // namespace warpfuse::cuda
