#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "rowwise/cpu/vector.h"
#include "rowwise/key_mask.h"

namespace warpfuse::WARPFUSE_ISA {

/// Fills the hidden keys on either side of the visible interval.
template <typename T>
void write_zeros(T* to, int64_t count, bool streamed) {
  const Pack<T> zeros(Compute<T>(0));
  transform(to, count, streamed, [&](int64_t, int64_t) { return zeros; });
}

// The masks of attention, one row at a time. enter(place, visible) selects a row; the other
// functions then work on its keys [visible.begin, visible.end), where i is the first of `count`
// visible keys, counted from 0. NoMask documents the interface.

template <typename T>
class NoMask {
 public:
  using P = Pack<T>;

  explicit NoMask(const MaskView& /*mask*/, int64_t /*keys*/) {}

  void enter(const RowPlace& /*place*/, const KeyInterval& visible) {
    count_ = visible.end - visible.begin;
  }

  /// Scaled scores to masked scores.
  P score(const P& scores, int64_t /*i*/, int64_t /*count*/) const { return scores; }

  /// The gradients that enter the row's sum.
  P incoming(const P& gradients, int64_t /*i*/, int64_t /*count*/) const { return gradients; }

  /// The gradients of the scores: 0 for hidden keys.
  P outgoing(const P& gradients, int64_t /*i*/, int64_t /*count*/) const { return gradients; }

  /// Whether the mask leaves any key visible.
  bool shows_any() const { return count_ > 0; }

  /// Sets row[i] to zero where the mask hides key i in the forward.
  void zero_hidden(T* /*row*/) const {}

 private:
  int64_t count_ = 0;
};

/// A row of a mask tensor of M, copied if its keys are not contiguous.
template <typename M>
class MaskRow {
 public:
  MaskRow(const MaskView& mask, int64_t keys)
      : mask_(mask),
        copy_(mask.key_stride == 1 ? nullptr : std::make_unique_for_overwrite<M[]>(keys)) {}

  void enter(const RowPlace& place, const KeyInterval& visible) {
    count_ = visible.end - visible.begin;
    row_ = static_cast<const M*>(mask_.data) + mask_.row_offset(place) +
           visible.begin * mask_.key_stride;
    if (copy_ != nullptr) {
      for (int64_t i = 0; i < count_; ++i) {
        copy_[i] = row_[i * mask_.key_stride];
      }
      row_ = copy_.get();
    }
  }

  const M* data() const { return row_; }
  const M* begin() const { return row_; }
  const M* end() const { return row_ + count_; }

 private:
  const MaskView& mask_;
  std::unique_ptr<M[]> copy_;
  const M* row_ = nullptr;
  int64_t count_ = 0;
};

/// A mask whose elements of type M (T, or float beside any T) are added.
template <typename T, typename M>
class AdditiveMask {
 public:
  using C = Compute<T>;
  using P = Pack<T>;

  AdditiveMask(const MaskView& mask, int64_t keys) : row_(mask, keys) {}

  void enter(const RowPlace& place, const KeyInterval& visible) { row_.enter(place, visible); }

  C10_ALWAYS_INLINE P score(const P& scores, int64_t i, int64_t count) const {
    const M* from = row_.data() + i;
    if constexpr (std::is_same_v<M, T>) {
      return scores + load(from, count);
    } else if constexpr (std::is_same_v<M, C>) {
      return scores + (count == kPackSize<T> ? P::loadu(from) : P::loadu(from, count));
    } else {
      C values[kPackSize<T>] = {};
      std::copy_n(from, count, values);
      return scores + P::loadu(values);
    }
  }

  P incoming(const P& gradients, int64_t /*i*/, int64_t /*count*/) const { return gradients; }
  P outgoing(const P& gradients, int64_t /*i*/, int64_t /*count*/) const { return gradients; }

  bool shows_any() const {
    return std::any_of(row_.begin(), row_.end(),
                       [](M value) { return static_cast<C>(value) != kNegativeInfinity<C>; });
  }

  void zero_hidden(T* /*row*/) const {}

 private:
  MaskRow<M> row_;
};

/// A pack of booleans: all bits of an element are set where it is true.
template <typename T>
C10_ALWAYS_INLINE Pack<T> mask_pack(const bool* from) {
  using C = Compute<T>;
  constexpr int64_t kSize = Vectorized<C>::size();
  Pack<T> mask;
  for (int64_t i = 0; i < kPackSize<T>; i += kSize) {
#if defined(CPU_CAPABILITY_AVX2) || defined(CPU_CAPABILITY_AVX512)
    if constexpr (std::is_same_v<C, float>) {
      const auto bytes =
          at::vec::convert_to_int32<uint8_t>(reinterpret_cast<const uint8_t*>(from + i));
      mask[i / kSize] = at::vec::cast<float>(bytes > Vectorized<int32_t>(0));
      continue;
    }
#endif
    mask[i / kSize] = at::vec::VecMask<C, 1>::from(from + i);
  }
  return mask;
}

/// A boolean mask, which hides keys or, with a fill value, replaces their scores.
template <typename T>
class BooleanMask {
 public:
  using C = Compute<T>;
  using P = Pack<T>;

  BooleanMask(const MaskView& mask, int64_t keys)
      : row_(mask, keys),
        fills_(mask.fills),
        hidden_score_(fills_ ? static_cast<C>(mask.fill_value) : kNegativeInfinity<C>) {}

  void enter(const RowPlace& place, const KeyInterval& visible) { row_.enter(place, visible); }

  C10_ALWAYS_INLINE P score(const P& scores, int64_t i, int64_t count) const {
    return select(scores, P(hidden_score_), i, count);
  }

  // A key with a fill value takes part in the sum.
  C10_ALWAYS_INLINE P incoming(const P& gradients, int64_t i, int64_t count) const {
    return fills_ ? gradients : outgoing(gradients, i, count);
  }

  C10_ALWAYS_INLINE P outgoing(const P& gradients, int64_t i, int64_t count) const {
    return select(gradients, P(C(0)), i, count);
  }

  bool shows_any() const {
    return std::any_of(row_.begin(), row_.end(), [&](bool shown) { return shown || fills_; });
  }

  void zero_hidden(T* row) const {
    for (const bool shown : row_) {
      if (!shown && !fills_) {
        *row = T(0);
      }
      ++row;
    }
  }

 private:
  // `visible` where the mask shows a key, else `hidden`.
  C10_ALWAYS_INLINE P select(const P& visible, const P& hidden, int64_t i, int64_t count) const {
    if (count == kPackSize<T>) {
      return P::blendv(hidden, visible, mask_pack<T>(row_.data() + i));
    }
    bool values[kPackSize<T>] = {};
    std::copy_n(row_.data() + i, std::min<int64_t>(count, kPackSize<T>), values);
    return P::blendv(hidden, visible, mask_pack<T>(values));
  }

  MaskRow<bool> row_;
  bool fills_;
  C hidden_score_;
};

}  // namespace warpfuse::WARPFUSE_ISA
