#pragma once

#include <cstdint>
#include <limits>

#include "rowwise/cpu/dropout.h"
#include "rowwise/cpu/vector.h"

namespace warpfuse::WARPFUSE_ISA {

/// Whether arguments are those with dropout.
template <typename Arguments>
constexpr bool kDropout = requires(const Arguments& arguments) { arguments.dropout; };

/// The maximum of a row without a key, in the statistics.
template <typename C>
constexpr C kNoKey = std::numeric_limits<C>::infinity();

/// What the elements of a row are multiplied by, 0 or dropout.scale.
template <typename T, bool kDraws>
class DropoutFactors {
 public:
  template <typename Arguments>
  DropoutFactors(const Arguments& arguments, int64_t keys) : factors_(kDraws ? keys : 0) {
    if constexpr (kDraws) {
      rng_ = arguments.rng.get();
    }
  }

  /// For `count` elements from `first` on, counted over the whole tensor.
  template <typename Arguments>
  void draw(const Arguments& arguments, int64_t first, int64_t count) const {
    if constexpr (kDraws) {
      draw_factors(arguments.dropout, rng_, first, count,
                   static_cast<Compute<T>>(arguments.dropout.scale), factors_.data());
    }
  }

  const Compute<T>* data() const { return factors_.data(); }

  C10_ALWAYS_INLINE Pack<T> apply(const Pack<T>& pack, int64_t i) const {
    if constexpr (kDraws) {
      return pack * Pack<T>::loadu(factors_.data() + i);
    } else {
      return pack;
    }
  }

 private:
  Scratch<T> factors_;
  Rng rng_{};
};

}  // namespace warpfuse::WARPFUSE_ISA
