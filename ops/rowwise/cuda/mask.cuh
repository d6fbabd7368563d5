#pragma once

#include "rowwise/cuda/mask_pack.cuh"
#include "rowwise/cuda/pack.cuh"
#include "rowwise/cuda/row_order.cuh"
#include "rowwise/key_mask.h"

namespace warpfuse::cuda {

// Masks: which keys of a row are visible.

/// Where dropout stands to the softmax.
enum class DropoutOrder { none, before_softmax, after_softmax };

/// The keep mask of a function without dropout.
struct NoKeepMask {};

/// No key is hidden: the mask of plain softmax.
struct NoMask {
  static constexpr bool kRules = false;   // a row may have an interval of visible keys
  static constexpr bool kTensor = false;  // a tensor hides keys too
  static constexpr bool kReads = false;   // row() reads memory

  struct Row {
    int64_t index;       // in the tensors; -1 for a step without a row
    int64_t begin, end;  // visible keys
  };

  /// The number of steps for `rows` rows, `block_rows` of them in a block. Called on the host
  /// before the launch.
  int64_t arrange(int64_t rows, int /*block_rows*/) { return rows; }

  /// Calls wait() before the first read, where there is one.
  template <typename Wait>
  __device__ Row row(int64_t step, int64_t columns, const Wait&) const {
    return {step, 0, columns};
  }
  template <typename T>
  __device__ PackedRow<T> packed(const T* start, int64_t columns, const Row&) const {
    return PackedRow<T>(start, columns);
  }
  __device__ bool any_visible(const Row&) const { return true; }
  __device__ bool hides(const Row&, int64_t) const { return false; }
  __device__ bool fills() const { return false; }
};

/// Runs of rows whose elements of the mask tensor follow one another in memory, or are the same.
/// Most masks have them, at least of the queries of a head.
struct MaskRuns {
  static constexpr int kMaxRows = 1 << 30;
  int rows = 0;        // a multiple of which begins a run; 0: there are none
  int step_bytes = 0;  // from a row to the next
  bool all = false;    // all rows are one run
  int same_rows = 0;   // a multiple of which begins runs of other elements; INT_MAX: there are none
};

/// The rules of scaled_masked_softmax and, where kTensor, its mask tensor.
template <typename T_, bool kWithTensor>
struct KeyMask {
  using T = T_;
  using C = Compute<T>;
  static constexpr bool kRules = true;
  static constexpr bool kTensor = kWithTensor;
  static constexpr bool kReads = true;

  struct Row {
    int64_t index;
    int64_t begin, end;
    int64_t offset;  // in the mask tensor
  };

  KeyRules rules;
  MaskView mask;
  RowOrder order;

  int64_t arrange(int64_t rows, int block_rows) {
    order = RowOrder(rules, rows, block_rows);
    return order.steps();
  }

  template <typename Wait>
  __device__ Row row(int64_t step, int64_t, const Wait& wait) const {
    const bool small = order.is_small();
    int64_t index;
    const RowPlace place =
        small ? order.place<int>(step, index) : order.place<int64_t>(step, index);
    wait();
    const KeyInterval visible = small ? rules.visible<int>(place) : rules.visible<int64_t>(place);
    return {index, visible.begin, visible.end, kTensor ? mask.row_offset(place) : 0};
  }

  /// The visible keys of the row of a step, where RowOrder::fits(rules, steps).
  __device__ KeyInterval interval(int step) const {
    int64_t index;
    return rules.visible<int>(order.place<int>(step, index));
  }

  __device__ PackedRow<T> packed(const T* start, int64_t columns, const Row& row) const {
    return PackedRow<T>(start, columns, row.begin, row.end);
  }

  /// Whether a key is visible as far as is known before the mask tensor is read.
  __device__ bool any_visible(const Row& row) const {
    return (!kTensor || fills()) && row.begin < row.end;
  }

  WARPFUSE_HOST_DEVICE bool fills() const { return kTensor && mask.fills; }
  WARPFUSE_HOST_DEVICE bool is_boolean() const { return mask.kind == MaskKind::boolean; }

  __device__ bool hides(const Row& row, int64_t key) const {
    return kTensor && is_boolean() &&
           !static_cast<const bool*>(mask.data)[row.offset + key * mask.key_stride];
  }

  MaskRuns runs(int64_t rows) const {
    const int64_t head = mask.query_stride * rules.queries;
    if (mask.key_stride != 1 || (mask.query_stride != 0 && mask.query_stride != rules.keys)) {
      return {};
    }
    const int64_t batch = rules.queries * rules.heads;
    int64_t run = rules.queries, same = mask.head_stride == 0 ? batch : run;
    if (rules.heads == 1 || mask.head_stride == head) {
      run = same = batch;
      if (rows == run || mask.batch_stride == head * rules.heads) {
        run = rows;
      }
    }
    if (same == batch && mask.batch_stride == 0) {
      same = INT_MAX;
    }
    return {static_cast<int>(std::min<int64_t>(run, MaskRuns::kMaxRows)),
            static_cast<int>(mask.query_stride * element_bytes()), run == rows,
            static_cast<int>(std::min<int64_t>(same, INT_MAX))};
  }

  /// Calls visit(M()) with the type of the mask tensor's elements, as numbers.
  template <typename Visit>
  WARPFUSE_HOST_DEVICE auto visit_type(const Visit& visit) const {
    return mask.kind == MaskKind::boolean    ? visit(MaskByte())
           : mask.kind == MaskKind::additive ? visit(T())
                                             : visit(float());
  }
  WARPFUSE_HOST_DEVICE int element_bytes() const {
    return visit_type([](auto zero) { return static_cast<int>(sizeof(zero)); });
  }
  __device__ const unsigned char* bytes_at(int64_t offset) const {
    return static_cast<const unsigned char*>(mask.data) + offset * element_bytes();
  }
  /// Of the row of a step, where RowOrder::fits(rules, steps).
  __device__ int64_t offset_of(int step) const {
    int64_t index;
    return mask.row_offset(order.place<int>(step, index));
  }

  __device__ MaskElement<C> element(const Row& row, int64_t key) const {
    const int64_t at = row.offset + key * mask.key_stride;
    MaskElement<C> element;
    visit_type([&](auto zero) {
      const auto value = static_cast<const decltype(zero)*>(mask.data)[at];
      if constexpr (sizeof(value) == 1) {
        element.hides = value == 0;
      } else {
        element.added = static_cast<C>(to_compute(value));
      }
    });
    return element;
  }

  /// Applies an element to a score, and sets any_visible where its key is visible.
  __device__ void apply(const MaskElement<C>& element, C& score, bool& any_visible) const {
    score += element.added;
    if (element.hides) {
      score = mask.fills ? static_cast<C>(mask.fill_value) : negative_infinity<C>();
    }
    any_visible |= !element.hides && element.added != negative_infinity<C>();
  }

  /// The elements M of the keys of a pack, from `key` on.
  template <typename M>
  __device__ MaskPack<M, kPack<T>> load(const Row& row, int64_t key) const {
    using Pack = MaskPack<M, kPack<T>>;
    const int64_t offset = row.offset + key * mask.key_stride;
    const M* const from = static_cast<const M*>(mask.data) + offset;
    if (mask.key_stride == 1 && offset + kPack<T> + Pack::kOvershoot <= mask.elements) {
      return Pack::load(from);
    }
    return Pack::gather(from, mask.key_stride);
  }

  /// Applies the mask tensor to the scores of the keys from `key` on and sets any_visible where one
  /// of them is visible. Scores outside the interval, where not `full`, come out undefined.
  template <typename M, int kCount>
  __device__ void apply(const Row& row, int64_t key, bool full, MaskPack<M, kCount> pack,
                        C (&scores)[kCount], bool& any_visible) const {
    if (!full) {
      pack.hide_unless([&](int i) { return key + i >= row.begin && key + i < row.end; });
    }
    if constexpr (pack.kBoolean) {
      const C hidden = mask.fills ? static_cast<C>(mask.fill_value) : negative_infinity<C>();
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        scores[i] = pack.visible(i) ? scores[i] : hidden;
      }
      any_visible |= pack.any_visible();
    } else {
      C added[kCount];
      pack.values(added);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        scores[i] += added[i];
        any_visible |= added[i] != negative_infinity<C>();
      }
    }
  }
};

}  // namespace warpfuse::cuda
