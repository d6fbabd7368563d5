#pragma once

#include <type_traits>

#include "rowwise/cuda/loads.cuh"
#include "rowwise/cuda/row_function.cuh"

namespace warpfuse::cuda {

// --- stores: from scores to results -----------------------------------------------------------

// A Store's value() makes a result of a score x of type T, of the row's maximum and of factor(sum),
// sum being that of exp(x - max); exponentials are in units of kExponentialUnit<T>. With kDropout
// the Store also has a `dropout`, note(row, max, sum, empty), called once or more a row, and
// finish(mask, zero, values) for neighbouring results; zero is 0 times any result of the row.

/// exp(x - max) / sum
template <typename T>
struct ProbabilityStore {
  using KeepMask = NoKeepMask;
  static constexpr bool kKeepsExponential = true;  // value() takes exp(x - max) in place of x
  static constexpr bool kDropout = false;

  using C = Compute<T>;

  __device__ static C factor(C sum) { return C(1) / sum; }
  __device__ static C value(C exponential_of_x, C, C factor) { return exponential_of_x * factor; }
};

/// (x - max) - log(sum)
template <typename T>
struct LogProbabilityStore {
  using KeepMask = NoKeepMask;
  static constexpr bool kKeepsExponential = false;
  static constexpr bool kDropout = false;

  using C = Compute<T>;

  __device__ static C factor(C sum) { return logarithm(sum / kExponentialUnit<T>); }
  __device__ static C value(C x, C max, C factor) { return (x - max) - factor; }
};

// --- the reduction ----------------------------------------------------------------------------

/// The maximum and the sum of exponentials of part of a row.
template <typename C>
struct SoftmaxPartial {
  C max;
  C sum;  // of exp(x - max)
  bool visible;

  __device__ static SoftmaxPartial none() { return {negative_infinity<C>(), C(0), false}; }
};

/// The part of Forward that finds a row's maximum and its sum of exponentials.
template <typename Load, typename Store>
struct ForwardSums {
  using T = typename Load::Element;
  using C = Compute<T>;
  using Raw = RawPack<1>;

  /// Scores of neighbouring elements, or what the Store keeps of them.
  template <int kCount>
  struct Values {
    C value[kCount];
  };
  using Fragment = Values<kPack<T>>;
  using Edge = Values<1>;

  using Partial = SoftmaxPartial<C>;
  struct Accumulator {
    C max = negative_infinity<C>();
    CascadeSum<C> sum{C(0)};  // of exp(x - max)
  };

  static constexpr bool kTensor = Load::Mask::kTensor;
  /// Half precision scores as they were loaded: their maximum takes packed instructions.
  static constexpr bool kRawMax =
      sizeof(T) == 2 && Load::kPlain && !Load::kDropout && !Load::Mask::kRules;
  using Base = ExpBase<T, sizeof(T) == 2 && Load::kPlain>;

  struct Result {
    C max;
    Base base;          // of the exponentials that fragments hold
    C factor;           // that belongs to `base`
    bool empty;         // no key is visible: the row is zeros
    bool check_hidden;  // hidden keys may not come out zero by themselves
  };

  Load load;
  // Not [[no_unique_address]]: nvcc and g++ lay out derived classes differently.
  Store store;

  __device__ Partial merge(const Partial& a, const Partial& b) const {
    const C max = larger(a.max, b.max);
    return {max,
            rescale<T>(a.sum, a.max, max, exponent_scale()) +
                rescale<T>(b.sum, b.max, max, exponent_scale()),
            a.visible || b.visible};
  }
  __device__ Partial merge(const Warp& lanes, const Partial& lane) const {
    const C max = lanes.max(lane.max);
    return {max, lanes.sum(rescale<T>(lane.sum, lane.max, max, exponent_scale())),
            kTensor && lanes.any(lane.visible)};
  }

  /// One exponential an element, relative to the maximum of the warp. The factor of the result
  /// brings them to the maximum of the row.
  template <typename Row, typename Group, typename Each>
  __device__ Result reduce(const Row& row, Group& group, const Each& each) const {
    Maximum lane_max;
    each(std::true_type(), [&](const auto& values) { lane_max.update(values); });
    const C max = group.lanes().max(lane_max.value());
    // While all scores are -inf, base 0 keeps their sum at 0; a NaN stays in it.
    const auto base = exp_base<Base>(max == negative_infinity<C>() ? C(0) : max);
    C sum = 0;
    each(std::false_type(), [&](auto& values) { sum += exponentials(values, base); });
    sum = group.lanes().sum(sum);
    const bool visible = kTensor && group.lanes().any(row.visible);
    const Partial total =
        group.total(*this, Partial{max, sum * base.rounding_correction(), visible});
    Result result = finish(row, total);
    if constexpr (Store::kKeepsExponential) {
      result.base = base;
      // The lanes of a chunk have the whole row, so that both corrections cancel and instructions
      // decide the time of short ones. In the tier warp and with dropout this takes more registers.
      if constexpr (std::is_base_of_v<ChunkLanes, Group> && !Load::kDropout && !Store::kDropout) {
        result.factor = reciprocal<T>(sum);
      } else {
        result.factor = rescale<T>(factor(total) * base.rounding_correction(), max, total.max,
                                   exponent_scale());
      }
    }
    return result;
  }

  /// Raises the maximum to that of raw packs.
  template <int kPacks>
  __device__ void update_max(Accumulator& accumulator, const Raw (&raws)[kPacks]) const
    requires kRawMax
  {
    C max = max_of_pair(max_pair<T>(raws[0].inputs[0]));
#pragma unroll
    for (int i = 1; i < kPacks; ++i) {
      max = larger(max, max_of_pair(max_pair<T>(raws[i].inputs[0])));
    }
    raise(accumulator, max);
  }

  template <int kCount, bool kMaxKnown = false>
  __device__ void add(Accumulator& accumulator, const Values<kCount>& values,
                      std::bool_constant<kMaxKnown> = {}) const {
    if constexpr (!kMaxKnown) {
      raise(accumulator, max_of(values));
    }
    Values<kCount> copy = values;
    const C max = accumulator.max;
    accumulator.sum.add(exponentials(
        copy, exp_base<ExpBase<T, false>>(max == negative_infinity<C>() ? C(0) : max)));
  }
  template <typename Row, typename Group>
  __device__ Partial total(const Row& row, Group& group, const Accumulator& accumulator) const {
    return group.total(
        *this, merge(group.lanes(), {accumulator.max, accumulator.sum.value(), row.visible}));
  }

  template <typename Row>
  __device__ Result finish(const Row& row, const Partial& total) const {
    bool empty = false;
    if constexpr (kTensor) {
      empty = !total.visible;
    } else if constexpr (Load::Mask::kRules) {
      empty = !row.visible;
    }
    if constexpr (Store::kDropout) {
      if (row.packed.packs + row.packed.edges > 0) {
        store.note(row.interval, total.max, total.sum, empty);
      }
    }
    const auto base = exp_base<Base>(total.max);
    C result_factor = factor(total);
    if constexpr (Store::kKeepsExponential) {
      result_factor *= base.rounding_correction();
    }
    return {total.max, base, result_factor, empty, !(total.sum > 0 && total.sum < C(INFINITY))};
  }

 protected:
  /// Returns the sum of exp(x - max); they replace x where the Store keeps them.
  template <int kCount, typename Base>
  __device__ static C exponentials(Values<kCount>& values, const Base& base) {
    C sum = 0;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const C value = base(values.value[i]);
      sum = i == 0 ? value : sum + value;
      if constexpr (Store::kKeepsExponential) {
        values.value[i] = value;
      }
    }
    return sum;
  }

 private:
  /// The factor of all exponents.
  __device__ C exponent_scale() const {
    if constexpr (requires { load.exponent_scale(); }) {
      return load.exponent_scale();
    }
    return 1;
  }
  template <typename Base>
  __device__ Base exp_base(C max) const {
    if constexpr (requires { Base(max, C(1), load.power_of_two()); }) {
      return Base(max, exponent_scale(), load.power_of_two());
    } else {
      return Base(max, exponent_scale());
    }
  }
  __device__ C factor(const Partial& total) const {
    if constexpr (Load::kDropout) {  // NaN, as ATen's, where the scaled maximum overflows
      return store.factor(total.sum + C(0) * (total.max * load.exponent_scale()));
    }
    return store.factor(total.sum);
  }

  /// Makes the accumulator's maximum at least `max`.
  __device__ void raise(Accumulator& accumulator, C max) const {
    if (max > accumulator.max) {
      accumulator.sum.scale(rescale_factor<T>((accumulator.max - max) * exponent_scale()));
      accumulator.max = max;
    }
  }

  /// The maximum of a lane: of raw packs in pairs, of values alone.
  struct Maximum {
    C max = negative_infinity<C>();
    PairOf<T> pair;

    __device__ Maximum() {
      if constexpr (kRawMax) {
        const T least = from_compute<T>(negative_infinity<C>());
        pair = PairOf<T>(least, least);
      }
    }
    template <int kCount>
    __device__ void update(const Values<kCount>& values) {
      max = larger(max, max_of(values));
    }
    __device__ void update(const Raw& raw) {
      PairOf<T> pairs[4];
      memcpy(pairs, &raw, sizeof(raw));
#pragma unroll
      for (const PairOf<T>& next : pairs) {
        pair = __hmax2(pair, next);
      }
    }
    __device__ C value() const {
      if constexpr (kRawMax) {
        return larger(max, max_of_pair(pair));
      }
      return max;
    }
  };

  template <int kCount>
  __device__ static C max_of(const Values<kCount>& values) {
    C max = values.value[0];
#pragma unroll
    for (int i = 1; i < kCount; ++i) {
      max = larger(max, values.value[i]);
    }
    return max;
  }
};

}  // namespace warpfuse::cuda
