#pragma once

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
  bool same = false;   // all runs are of the same elements
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
  __device__ MaskKind kind() const { return mask.kind; }

  __device__ bool hides(const Row& row, int64_t key) const {
    return kTensor && mask.kind == MaskKind::boolean &&
           !boolean()[row.offset + key * mask.key_stride];
  }

  WARPFUSE_HOST_DEVICE bool is_boolean() const { return mask.kind == MaskKind::boolean; }

  MaskRuns runs(int64_t rows) const {
    const int64_t head = mask.query_stride * rules.queries;
    if (mask.key_stride != 1 || (mask.query_stride != 0 && mask.query_stride != rules.keys)) {
      return {};
    }
    int64_t run = rules.queries;
    bool same = mask.batch_stride == 0 && mask.head_stride == 0;
    if (rules.heads == 1 || mask.head_stride == head) {
      run *= rules.heads;
      same = mask.batch_stride == 0;
      if (rows == run || mask.batch_stride == head * rules.heads) {
        run = rows;
      }
    }
    return {static_cast<int>(std::min<int64_t>(run, MaskRuns::kMaxRows)),
            static_cast<int>(mask.query_stride * element_bytes()), run == rows, same};
  }

  /// Calls visit(M()) with the type of the mask tensor's elements, as numbers.
  template <typename Visit>
  WARPFUSE_HOST_DEVICE auto visit_type(const Visit& visit) const {
    return mask.kind == MaskKind::boolean    ? visit(static_cast<unsigned char>(0))
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

  /// The mask of the pack of keys from `key` on, loaded ahead of apply() or visible_keys() where
  /// one load can. full: all of them are inside the row's interval.
  __device__ MaskPack load(const Row& row, int64_t key, bool full) const {
    constexpr int kCount = kPack<T>;
    const int bytes = mask.kind == MaskKind::boolean ? kCount : 16;
    const unsigned char* at = bytes_at(row.offset + key * mask.key_stride);
    MaskPack pack;
    pack.loaded = full && mask.key_stride == 1 && element_bytes() * kCount == bytes &&
                  reinterpret_cast<uintptr_t>(at) % bytes == 0;
    if (pack.loaded) {
      if (bytes == 16) {
        pack.words = *reinterpret_cast<const uint4*>(at);
      } else if constexpr (kCount == 8) {
        const uint2 words = *reinterpret_cast<const uint2*>(at);
        pack.words.x = words.x;
        pack.words.y = words.y;
      } else if constexpr (kCount == 4) {
        pack.words.x = *reinterpret_cast<const unsigned*>(at);
      } else {
        pack.words.x = *reinterpret_cast<const unsigned short*>(at);
      }
    }
    return pack;
  }

  /// Which of the keys [key, key + kCount) the boolean mask leaves visible; outside the interval
  /// undefined.
  template <int kCount>
  __device__ VisibleKeys visible_keys(const Row& row, int64_t key, const MaskPack& pack) const {
    VisibleKeys keys{{pack.words.x, pack.words.y}};
    if (!pack.loaded) {
      unsigned char bytes[kCount];
      load_each(bytes, row, key);
      keys = {};
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        keys.bytes[i / 4] |= static_cast<unsigned>(bytes[i]) << i % 4 * 8;
      }
    }
    return keys;
  }

  /// Applies the mask tensor to the scores of the keys [key, key + kCount) and sets any_visible
  /// where one of them is visible. Scores outside the interval come out undefined.
  template <int kCount>
  __device__ void apply(const Row& row, int64_t key, bool full, const MaskPack& pack,
                        C (&scores)[kCount], bool& any_visible) const {
    if (mask.kind == MaskKind::boolean) {
      const VisibleKeys keys = visible_keys<kCount>(row, key, pack);
      const C hidden = mask.fills ? static_cast<C>(mask.fill_value) : negative_infinity<C>();
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        scores[i] = keys[i] ? scores[i] : hidden;
      }
      any_visible |= keys.any();
      return;
    }
    C added[kCount];
    if (mask.kind == MaskKind::additive) {
      load_added<T>(row, key, full, pack, added);
    } else {
      load_added<float>(row, key, full, pack, added);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      scores[i] += added[i];
      any_visible |= added[i] != negative_infinity<C>();
    }
  }

 private:
  __device__ const bool* boolean() const { return static_cast<const bool*>(mask.data); }

  /// Loads the elements of the keys [key, key + kCount) one by one; in place of those outside the
  /// interval, the nearest inside.
  template <typename M, int kCount>
  __device__ void load_each(M (&elements)[kCount], const Row& row, int64_t key) const {
    const M* at = static_cast<const M*>(mask.data) + row.offset + key * mask.key_stride;
    const int first = static_cast<int>(max(row.begin - key, int64_t{0}));
    const int last = static_cast<int>(min(row.end - key, int64_t{kCount})) - 1;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      elements[i] = at[min(max(i, first), last) * mask.key_stride];
    }
  }

  /// The elements of an additive mask, of `pack` or loaded.
  template <typename M, int kCount>
  __device__ void load_added(const Row& row, int64_t key, bool full, const MaskPack& pack,
                             C (&added)[kCount]) const {
    constexpr bool kOfPack = std::is_same_v<M, T>;
    if constexpr (kCount % kPack<M> == 0) {
      const M* at = static_cast<const M*>(mask.data) + row.offset + key * mask.key_stride;
      if (kOfPack ? pack.loaded
                  : full && mask.key_stride == 1 && reinterpret_cast<uintptr_t>(at) % 16 == 0) {
#pragma unroll
        for (int first = 0; first < kCount; first += kPack<M>) {
          Compute<M> part[kPack<M>];
          unpack<M>(kOfPack ? pack.words : load_16_bytes(at + first), part);
#pragma unroll
          for (int i = 0; i < kPack<M>; ++i) {
            added[first + i] = static_cast<C>(part[i]);
          }
        }
        return;
      }
    }
    M elements[kCount];
    load_each(elements, row, key);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      added[i] = static_cast<C>(to_compute(elements[i]));
    }
  }
};

}  // namespace warpfuse::cuda
