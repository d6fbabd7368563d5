#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "rowwise/cpu/transposed.h"
#include "scaled_masked_softmax/scaled_masked_softmax.h"

namespace warpfuse::WARPFUSE_ISA {

/// The maximum of a row without a key, in the statistics.
template <typename C>
constexpr C kNoKey = std::numeric_limits<C>::infinity();

/// A block of short rows of masked scores, transposed, and what the rules and the mask make of each
/// key.
template <typename T>
class MaskedBlock {
 public:
  using C = Compute<T>;
  using P = Pack<T>;
  static constexpr int64_t kRows = TransposedBlock<T>::kRows;

  explicit MaskedBlock(const MaskedRows& in)
      : rules_(in.rules),
        mask_(in.mask),
        scale_(static_cast<C>(in.scale)),
        unshown_score_(mask_.fills ? static_cast<C>(mask_.fill_value) : kNegativeInfinity<C>),
        unshown_(mask_.fills ? kFilled : kHidden),
        scores_(rules_.keys),
        states_(rules_.keys) {
    if (mask_.kind == MaskKind::none) {
      static constexpr bool kShown = true;
      mask_ = {.data = &kShown, .kind = MaskKind::boolean};
    }
  }

  /// x: the scores of the rows [first, first + rows), `rows` at most kRows
  C10_NOINLINE void read(const T* x, int64_t first, int64_t rows) {
    switch (mask_.kind) {
      case MaskKind::none:
      case MaskKind::boolean:
        return read<bool>(x, first, rows);
      case MaskKind::additive:
        return read<T>(x, first, rows);
      case MaskKind::additive_float32:
        return read<float>(x, first, rows);
    }
  }

  /// [keys, kRows], -inf at hidden keys
  C* scores() { return scores_.data(); }

  /// All bits where a key takes part in its row, for the pack at `at` of [keys, kRows].
  C10_ALWAYS_INLINE P counts(int64_t at) { return P::loadu(states_.data() + at) > P(kHidden); }

  /// All bits where its score does, too.
  C10_ALWAYS_INLINE P is_scored(int64_t at) { return P::loadu(states_.data() + at) > P(kFilled); }

 private:
  static constexpr C kHidden = 0, kFilled = 1, kScored = 2;

  template <typename M>
  void read(const T* x, int64_t first, int64_t rows) {
    const int64_t keys = rules_.keys;
    RowPlace place = rules_.place(first);
    for (int64_t lane = 0; lane < rows; ++lane, place = rules_.next(place)) {
      const KeyInterval visible = rules_.visible(place);
      const M* mask = static_cast<const M*>(mask_.data) + mask_.row_offset(place);
      bool any = false;
      for (int64_t key = 0; key < keys; ++key) {
        const M value = mask[key * mask_.key_stride];
        C score = static_cast<C>(x[lane * keys + key]) * scale_;
        C state = kScored;
        bool shown = visible.contains(key);
        if constexpr (std::is_same_v<M, bool>) {
          score = value ? score : unshown_score_;
          state = value ? kScored : unshown_;
          any |= shown && state > kHidden;
        } else {
          score += static_cast<C>(value);
          any |= shown && static_cast<C>(value) != kNegativeInfinity<C>;
        }
        scores_.data()[key * kRows + lane] = shown ? score : kNegativeInfinity<C>;
        states_.data()[key * kRows + lane] = shown ? state : kHidden;
      }
      for (int64_t key = 0; !any && key < keys; ++key) {
        states_.data()[key * kRows + lane] = kHidden;
      }
    }
  }

  const KeyRules& rules_;
  MaskView mask_;
  C scale_, unshown_score_, unshown_;
  TransposedBlock<T, C> scores_, states_;
};

}  // namespace warpfuse::WARPFUSE_ISA
