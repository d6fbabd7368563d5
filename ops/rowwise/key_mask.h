#pragma once

#include <climits>
#include <cstdint>

#include "common/host_device.h"

namespace warpfuse {

/// Keys [begin, end) of a row.
struct KeyInterval {
  int64_t begin;
  int64_t end;

  WARPFUSE_HOST_DEVICE bool contains(int64_t key) const { return key >= begin && key < end; }
};

/// An int32 or int64 tensor of positions or lengths, [B, Tq] or [B]; data is null where absent.
struct IndexView {
  const void* data = nullptr;
  bool is_int64 = false;
  int64_t batch_stride = 0;
  int64_t query_stride = 0;

  WARPFUSE_HOST_DEVICE int64_t at(int64_t batch, int64_t query) const {
    const int64_t offset = batch * batch_stride + query * query_stride;
    return is_int64 ? static_cast<const int64_t*>(data)[offset]
                    : static_cast<const int32_t*>(data)[offset];
  }
};

/// Where a row of scores [B, H, Tq, Tk] stands.
struct RowPlace {
  int64_t batch;
  int64_t head;
  int64_t query;
};

/// The rules that hide keys by position. They leave one interval a row visible, so that a kernel
/// need not read the rest.
struct KeyRules {
  int64_t heads = 1;
  int64_t queries = 1;
  int64_t keys = 1;
  bool causal = false;
  int64_t diagonal = 0;  // the own key of query i is i + diagonal, unless it has a position
  int64_t window = 0;    // 0: none; at most queries + keys, so that nothing overflows
  IndexView query_positions;
  IndexView key_lengths;

  WARPFUSE_HOST_DEVICE RowPlace place(int64_t row) const {
    const int64_t head_row = row / queries;
    return {head_row / heads, head_row % heads, row % queries};
  }

  /// The place of the row after that at `row`.
  WARPFUSE_HOST_DEVICE RowPlace next(RowPlace row) const {
    if (++row.query == queries) {
      row.query = 0;
      if (++row.head == heads) {
        row.head = 0;
        ++row.batch;
      }
    }
    return row;
  }

  /// Int may be 32 bits wide where fits_in_32_bits().
  template <typename Int = int64_t>
  WARPFUSE_HOST_DEVICE KeyInterval visible(const RowPlace& row) const {
    const Int all = static_cast<Int>(keys), query = static_cast<Int>(row.query);
    Int begin = 0, end = all, own = query + static_cast<Int>(diagonal);
    if (causal) {
      end = smaller(end, own + 1);
    }
    if (query_positions.data != nullptr) {
      own =
          static_cast<Int>(clamp<int64_t>(query_positions.at(row.batch, row.query), -1, keys - 1));
      end = smaller(end, own + 1);
    }
    if (key_lengths.data != nullptr) {
      end = smaller(end, static_cast<Int>(clamp<int64_t>(key_lengths.at(row.batch, 0), 0, keys)));
    }
    if (window > 0) {
      end = smaller(end, own + 1);
      begin = own - static_cast<Int>(window) + 1;
    }
    end = clamp<Int>(end, 0, all);
    return {clamp<Int>(begin, 0, end), end};
  }

  /// Whether all queries see all keys.
  bool hides_none() const {
    return !causal && window == 0 && query_positions.data == nullptr && key_lengths.data == nullptr;
  }

  bool fits_in_32_bits() const { return queries + keys < int64_t{512} * 1024 * 1024; }
  /// So do the numbers of so many rows.
  bool fits_in_32_bits(int64_t rows) const { return rows < INT_MAX && fits_in_32_bits(); }

 private:
  template <typename Int>
  WARPFUSE_HOST_DEVICE static Int smaller(Int a, Int b) {
    return a < b ? a : b;
  }
  template <typename Int>
  WARPFUSE_HOST_DEVICE static Int clamp(Int value, Int low, Int high) {
    return value < low ? low : (value > high ? high : value);
  }
};

/// What a mask tensor holds.
enum class MaskKind : int { none, boolean, additive, additive_float32 };

/// An element of a mask tensor.
template <typename C>
struct MaskElement {
  C added = 0;         // of an additive mask
  bool hides = false;  // a boolean one hides the key
};

/// attn_mask, broadcast to [B, H, Tq, Tk] by strides (0 where it is broadcast).
struct MaskView {
  const void* data = nullptr;
  MaskKind kind = MaskKind::none;
  int64_t batch_stride = 0;
  int64_t head_stride = 0;
  int64_t query_stride = 0;
  int64_t key_stride = 0;
  int64_t elements = 0;  // from the first to the last in memory
  bool fills = false;    // a hidden key of the boolean mask takes fill_value as its score
  double fill_value = 0.0;

  WARPFUSE_HOST_DEVICE int64_t row_offset(const RowPlace& row) const {
    return row.batch * batch_stride + row.head * head_stride + row.query * query_stride;
  }
};

}  // namespace warpfuse
