#pragma once

#include "rowwise/cuda/types.cuh"
#include "rowwise/key_mask.h"

namespace warpfuse::cuda {

/// Nothing is hidden: the mask of plain softmax.
struct NoMask {
  static constexpr bool kRules = false;
  struct Row {
    int64_t begin, end;  // keys that the rules leave visible
  };

  __device__ Row row(int64_t, int64_t columns) const { return {0, columns}; }
  __device__ bool any_visible(const Row&) const { return true; }
  __device__ bool hides(const Row&, int64_t) const { return false; }
  __device__ bool fills() const { return false; }
};

/// The rules of scaled_masked_softmax, and its mask tensor where kTensor.
template <typename T, bool kTensor>
struct KeyMask {
  static constexpr bool kRules = true;
  struct Row {
    int64_t begin, end;
    int64_t offset;  // of the row in the mask tensor
  };

  KeyRules rules;
  MaskView mask;

  __device__ Row row(int64_t index, int64_t) const {
    const RowPlace place = rules.place(index);
    const KeyInterval visible = rules.visible(place);
    return {visible.begin, visible.end, kTensor ? mask.row_offset(place) : 0};
  }

  /// Before any mask element was seen.
  __device__ bool any_visible(const Row& row) const {
    return (!kTensor || fills()) && row.begin < row.end;
  }

  __device__ bool hides(const Row& row, int64_t key) const {
    return kTensor && mask.kind == MaskKind::boolean &&
           !static_cast<const bool*>(mask.data)[row.offset + key * mask.key_stride];
  }

  __device__ bool fills() const { return kTensor && mask.fills; }

  /// The score of one key in the rules' interval after the mask; visible is set where it is one.
  __device__ Compute<T> apply(const Row& row, int64_t key, Compute<T> score, bool& visible) const {
    using C = Compute<T>;
    if constexpr (kTensor) {
      if (mask.kind == MaskKind::boolean) {
        const bool hidden = hides(row, key);
        visible |= !hidden;
        return !hidden ? score : mask.fills ? static_cast<C>(mask.fill_value) : lowest<C>();
      }
      const int64_t at = row.offset + key * mask.key_stride;
      const C value = mask.kind == MaskKind::additive
                          ? to_compute(static_cast<const T*>(mask.data)[at])
                          : static_cast<C>(static_cast<const float*>(mask.data)[at]);
      visible |= value != lowest<C>();
      return score + value;
    }
    return score;
  }
};

}  // namespace warpfuse::cuda
