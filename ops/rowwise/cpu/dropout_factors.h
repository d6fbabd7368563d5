#pragma once

#include <cstdint>

#include "rowwise/cpu/dropout.h"
#include "rowwise/cpu/transposed.h"
#include "rowwise/cpu/vector.h"

namespace warpfuse::WARPFUSE_ISA {

/// Whether arguments are those with dropout.
template <typename Arguments>
constexpr bool kDropout = requires(const Arguments& arguments) { arguments.dropout; };

/// What the elements of a row are multiplied by, 0 or dropout.scale.
template <typename T, bool kDraws>
class DropoutFactors {
 public:
  template <typename Arguments>
  DropoutFactors(const Arguments& arguments, int64_t columns) : factors_(kDraws ? columns : 0) {
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

/// DropoutFactors of a block of rows.
template <typename T, bool kDraws>
class TransposedFactors {
 public:
  template <typename Arguments>
  TransposedFactors(const Arguments& arguments, int64_t columns)
      : columns_(columns),
        drawn_(arguments, columns * TransposedBlock<T>::kRows),
        factors_(columns) {}

  template <typename Arguments>
  void draw(const Arguments& arguments, int64_t row, int64_t rows) {
    if constexpr (kDraws) {
      drawn_.draw(arguments, row * columns_, rows * columns_);
      factors_.read(drawn_.data(), rows);
    }
  }

  C10_ALWAYS_INLINE Pack<T> apply(const Pack<T>& pack, int64_t at) {
    if constexpr (kDraws) {
      return pack * Pack<T>::loadu(factors_.data() + at);
    } else {
      return pack;
    }
  }

 private:
  int64_t columns_;
  DropoutFactors<T, kDraws> drawn_;
  TransposedBlock<T, Compute<T>> factors_;
};

}  // namespace warpfuse::WARPFUSE_ISA
