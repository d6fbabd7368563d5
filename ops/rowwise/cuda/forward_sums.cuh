#pragma once

#include <type_traits>

#include "common/cascade_sum.h"
#include "rowwise/cuda/group.cuh"
#include "rowwise/cuda/mask.cuh"
#include "rowwise/cuda/pack.cuh"

namespace warpfuse::cuda {

/// A Store functor says what becomes of a score x of type T when the row's maximum m and its sum s
/// of exp(x - m), both exponentials in units of kExponentialUnit<T>, are known. One that kFinishes
/// also has note(row, m, s, empty), called once or more a row, and finish(drawn, zero, values) for
/// neighbouring results, by what its `drop` has drawn for them; zero is 0 times any of the row.

/// exp(x - m) / s
template <typename T>
struct ProbabilityStore {
  static constexpr bool kKeepsExponential = true;  // value() takes exp(x - m) in place of x
  static constexpr bool kFinishes = false;
  using KeepMask = NoKeepMask;

  using C = Compute<T>;

  __device__ static C factor(C sum) { return C(1) / sum; }
  __device__ static C value(C exponential_of_x, C, C factor) { return exponential_of_x * factor; }
};

/// (x - m) - log s
template <typename T>
struct LogProbabilityStore {
  static constexpr bool kKeepsExponential = false;
  static constexpr bool kFinishes = false;
  using KeepMask = NoKeepMask;

  using C = Compute<T>;

  __device__ static C factor(C sum) { return logarithm(sum / kExponentialUnit<T>); }
  __device__ static C value(C x, C max, C factor) { return (x - max) - factor; }
};

/// The part of Forward that finds a row's maximum and its sum of exponentials.
template <typename Load, typename Store>
struct ForwardSums {
  using T = typename Load::Element;
  using C = Compute<T>;

  /// A pack as it lies in memory.
  struct RawPack {
    uint4 x;
  };
  /// Neighbouring elements between their read and their write: scores, then what the store wants.
  template <int kCount>
  struct Values {
    C value[kCount];
  };
  using Fragment = Values<kPack<T>>;
  using Edge = Values<1>;
  /// max_of() takes the bits of a pack too, which is quicker than to unpack them.
  static constexpr bool kMaxOfRaw = sizeof(T) == 2 && Load::kPlain && !Load::kAlters;
  /// Scores are of type T.
  static constexpr bool kAsRead = sizeof(T) == 2 && Load::kPlain;
  /// What exponentials are relative to: ExpBase.
  using Base = ExpBase<T, kAsRead>;

  /// What lanes, warps and blocks tell each other of their part of the row.
  struct Summary {
    C max;
    C sum;  // of exp(x - max)
    bool visible;
  };

  struct Result {
    C max;
    Base base;   // of the exponentials that were kept
    C factor;    // for those
    bool empty;  // no visible key: zeros
    bool sound;  // the sum is positive and finite
  };

  Load load;
  // Not [[no_unique_address]]: nvcc and g++ lay out what derives from this differently.
  Store store;

  __device__ static Summary nothing() { return {negative_infinity<C>(), C(0), false}; }

  /// What two found together.
  __device__ Summary join(const Summary& a, const Summary& b) const {
    const C max = larger(a.max, b.max);
    const auto scaled = [&](const Summary& s) {
      return s.max == max ? s.sum : s.sum * decayed(s.max - max);
    };
    return {max, scaled(a) + scaled(b), a.visible || b.visible};
  }

  /// What the lanes found together.
  __device__ Summary merge(const Warp& lanes, const Summary& of_lane) const {
    const C max = lanes.max(of_lane.max);
    const C sum = of_lane.max == max ? of_lane.sum : of_lane.sum * decayed(of_lane.max - max);
    return {max, lanes.sum(sum), Load::Mask::kTensor && lanes.any(of_lane.visible)};
  }

  /// each(first_time, f) calls f(kept) for what this lane keeps and leaves what f makes of it; the
  /// first time it may pass bits where kMaxOfRaw is set. One exponential an element, relative to
  /// the maximum of the warp; what is left to the maximum of the row goes into the factor.
  template <typename Row, typename Group, typename Each>
  __device__ Result reduce(const Row& row, Group& group, const Each& each) const {
    Maximum of_lane;
    each(std::true_type(), [&](const auto& kept) { of_lane.take(kept); });
    const C max = group.lanes().max(of_lane.value());
    // While all are -inf, a zero in place of the maximum keeps their sum at 0, and a NaN in it.
    const auto base = relative_to<Base>(max == negative_infinity<C>() ? C(0) : max);
    C sum = 0;
    each(std::false_type(), [&](auto& kept) { sum += exponentials(kept, base); });
    sum = group.lanes().sum(sum) * base.rounding_correction();
    const bool visible = Load::Mask::kTensor && group.lanes().any(row.visible);
    const Summary total = group.total(*this, {max, sum, visible});
    Result result = finish(row, total);
    if constexpr (Store::kKeepsExponential) {
      result.base = base;
      result.factor = factor_of(total) * base.rounding_correction();
      if (max != total.max) {
        result.factor *= decayed(max - total.max);
      }
    }
    return result;
  }

  /// The maximum and the sum so far of what one lane has seen, for rows that are seen twice.
  struct Partial {
    C max = negative_infinity<C>();
    CascadeSum<C> sum{C(0)};
  };

  /// Makes the maximum no less than `max`, of what is added next.
  __device__ void raise(Partial& partial, C max) const {
    if (max > partial.max) {
      partial.sum.scale(decayed(partial.max - max));
      partial.max = max;
    }
  }

  /// Adds what is no greater than the maximum.
  template <int kCount>
  __device__ void accumulate(Partial& partial, const Values<kCount>& kept) const {
    Values<kCount> copy = kept;
    const auto base =
        relative_to<ExpBase<T, false>>(partial.max == negative_infinity<C>() ? C(0) : partial.max);
    partial.sum.add(exponentials(copy, base));
  }

  template <int kCount>
  __device__ void add(Partial& partial, const Values<kCount>& kept) const {
    raise(partial, max_of(kept));
    accumulate(partial, kept);
  }

  /// The same for several packs at once, by their bits.
  template <int kPacks>
  __device__ void raise(Partial& partial, const RawPack (&bits)[kPacks]) const {
    C max = max_of(bits[0]);
#pragma unroll
    for (int i = 1; i < kPacks; ++i) {
      max = larger(max, max_of(bits[i]));
    }
    raise(partial, max);
  }

  template <typename Row, typename Group>
  __device__ Summary total(const Row& row, Group& group, const Partial& partial) const {
    return group.total(*this,
                       merge(group.lanes(), {partial.max, partial.sum.value(), row.visible}));
  }

  template <typename Row>
  __device__ Result finish(const Row& row, const Summary& total) const {
    bool empty = false;
    if constexpr (Load::Mask::kTensor) {
      empty = !total.visible;
    } else if constexpr (Load::Mask::kRules) {
      empty = !row.visible;
    }
    if constexpr (Store::kFinishes) {
      if (row.layout.packs + row.layout.edges > 0) {
        store.note(row.interval, total.max, total.sum, empty);
      }
    }
    const auto base = relative_to<Base>(total.max);
    const C factor = factor_of(total);
    return {total.max, base,
            Store::kKeepsExponential ? factor * base.rounding_correction() : factor, empty,
            total.sum > 0 && total.sum < C(INFINITY)};
  }

  /// Brings scores to what write() takes.
  template <int kCount>
  __device__ void prepare(Values<kCount>& kept, const Result& result) const {
    if constexpr (Store::kKeepsExponential) {
      exponentials(kept, result.base);
    }
  }

 private:
  __device__ C factor_of(const Summary& total) const {
    if constexpr (Load::kScales) {  // NaN, as ATen's, where the scaled maximum overflows
      return store.factor(total.sum + C(0) * (total.max * load.scale_of_exponent()));
    }
    return store.factor(total.sum);
  }
  template <typename ExpBase>
  __device__ ExpBase relative_to(C max) const {
    if constexpr (Load::kScales) {
      return ExpBase(max, load.scale_of_exponent());
    }
    return ExpBase(max);
  }
  /// What a sum is multiplied by when its maximum grows.
  __device__ C decayed(C difference) const {
    if constexpr (Load::kScales) {
      difference *= load.scale_of_exponent();
    }
    return rescale_factor<T>(difference);
  }

  /// The maximum of a lane's values; of packs that are taken as bits, in pairs.
  struct Maximum {
    using Pair = PairOf<T>;
    C max = negative_infinity<C>();
    Pair pair;
    __device__ Maximum() {
      if constexpr (kMaxOfRaw) {
        const T least = from_compute<T>(negative_infinity<C>());
        pair = Pair(least, least);
      }
    }

    template <int kCount>
    __device__ void take(const Values<kCount>& values) {
      max = larger(max, max_of(values));
    }
    __device__ void take(const RawPack& bits) {
      Pair pairs[4];
      memcpy(pairs, &bits, sizeof(bits));
#pragma unroll
      for (const Pair& next : pairs) {
        pair = __hmax2(pair, next);
      }
    }
    __device__ C value() const {
      if constexpr (kMaxOfRaw) {
        return larger(max, larger(to_compute(pair.x), to_compute(pair.y)));
      }
      return max;
    }
  };

  template <int kCount>
  __device__ static C max_of(const Values<kCount>& kept) {
    C max = kept.value[0];
#pragma unroll
    for (int i = 1; i < kCount; ++i) {
      max = larger(max, kept.value[i]);
    }
    return max;
  }

  __device__ static C max_of(const RawPack& bits) {
    using Pair = PairOf<T>;
    Pair pairs[4];
    memcpy(pairs, &bits, sizeof(bits));
    const Pair max = __hmax2(__hmax2(pairs[0], pairs[1]), __hmax2(pairs[2], pairs[3]));
    return larger(to_compute(max.x), to_compute(max.y));
  }

  /// The sum of exp(x - max), which take the place of x where the store wants them.
  template <int kCount, typename Base>
  __device__ static C exponentials(Values<kCount>& kept, const Base& base) {
    C sum = 0;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const C value = base(kept.value[i]);
      sum += value;
      if constexpr (Store::kKeepsExponential) {
        kept.value[i] = value;
      }
    }
    return sum;
  }
};

}  // namespace warpfuse::cuda
