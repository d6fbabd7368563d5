#pragma once

#include <climits>
#include <cstdint>

#include "rowwise/key_mask.h"

namespace warpfuse::cuda {

/// n / divisor for n below 2^31 by a multiplication (Granlund and Montgomery, "Division by
/// invariant integers using multiplication"): a division takes as long as many elements of a row.
struct FastDivisor {
  int64_t divisor = 1;
  unsigned multiplier = 0;
  int shift = 0;

  FastDivisor() = default;
  explicit FastDivisor(int64_t value) : divisor(value) {
    if (value > INT_MAX) {
      return;  // quotient() is not valid; callers divide 64-bit integers
    }
    while ((int64_t{1} << shift) < divisor) {
      ++shift;
    }
    const auto excess = static_cast<uint64_t>((int64_t{1} << shift) - divisor);
    multiplier = static_cast<unsigned>((excess << 32) / static_cast<uint64_t>(divisor) + 1);
  }

  WARPFUSE_HOST_DEVICE int quotient(int n) const {
    const auto number = static_cast<unsigned>(n);
#ifdef __CUDA_ARCH__
    const unsigned upper = __umulhi(number, multiplier);
#else
    const auto upper = static_cast<unsigned>((uint64_t{number} * multiplier) >> 32);
#endif
    return static_cast<int>((upper + number) >> shift);
  }
};

/// The order in which blocks take the rows of attention's scores. Where later queries see more
/// keys, the last queries of all heads come first, so that no long row is left for the last wave.
/// The `block_rows` rows of a block, a power of two, are neighbouring queries. With 0, or where
/// blocks would have too few queries of a head, steps are rows in the order of memory.
class RowOrder {
 public:
  RowOrder() = default;
  RowOrder(const KeyRules& rules, int64_t rows, int block_rows)
      : queries_(rules.queries),
        longest_first_(block_rows > 0 && (rules.causal || rules.query_positions.data != nullptr) &&
                       padding(block_rows) <= queries_ / 8) {
    blocks_ = longest_first_ ? (queries_ + padding(block_rows)) / block_rows : 0;
    const int64_t head_rows = rows / queries_;
    steps_ = longest_first_ ? head_rows * blocks_ * block_rows : rows;
    block_shift_ = 0;
    while ((1 << block_shift_) < block_rows) {
      ++block_shift_;
    }
    small_ = fits(rules, steps_);
    by_head_rows_ = FastDivisor(head_rows);
    by_queries_ = FastDivisor(queries_);
    by_heads_ = FastDivisor(rules.heads);
  }

  /// All numbers but offsets fit in 32 bits.
  static bool fits(const KeyRules& rules, int64_t steps) { return rules.fits_in_32_bits(steps); }

  /// The number of rows, and of padding steps that have no row.
  int64_t steps() const { return steps_; }

  /// All indices fit in 32 bits; 64-bit arithmetic is slower on GPUs.
  WARPFUSE_HOST_DEVICE bool is_small() const { return small_; }

  /// The row of a step and its place. A padding step gets index -1 and the place of the last query,
  /// because the rules read tensors at the place.
  template <typename Int>
  WARPFUSE_HOST_DEVICE RowPlace place(int64_t at, int64_t& index) const {
    const Int step = static_cast<Int>(at), queries = static_cast<Int>(queries_);
    Int head_row, query;
    if (longest_first_) {
      const Int block = step >> block_shift_;
      const Int from_last = divide(block, by_head_rows_);
      head_row = block - from_last * static_cast<Int>(by_head_rows_.divisor);
      query = ((static_cast<Int>(blocks_) - 1 - from_last) << block_shift_) + step -
              (block << block_shift_);
    } else {
      head_row = divide(step, by_queries_);
      query = step - head_row * queries;
    }
    index = query < queries ? static_cast<int64_t>(head_row * queries + query) : -1;
    query = query < queries ? query : queries - 1;
    const Int batch = divide(head_row, by_heads_);
    return {batch, head_row - batch * static_cast<Int>(by_heads_.divisor), query};
  }

 private:
  /// Steps of a head's last block that have no query.
  int64_t padding(int block_rows) const {
    return (queries_ + block_rows - 1) / block_rows * block_rows - queries_;
  }

  WARPFUSE_HOST_DEVICE static int divide(int n, const FastDivisor& by) { return by.quotient(n); }
  WARPFUSE_HOST_DEVICE static int64_t divide(int64_t n, const FastDivisor& by) {
    return n / by.divisor;
  }

  int64_t queries_ = 1, blocks_ = 1, steps_ = 0;  // blocks_: of one head
  int block_shift_ = 0;
  bool longest_first_ = false;
  bool small_ = true;
  FastDivisor by_head_rows_, by_queries_, by_heads_;
};

/// The visible keys [begin, end) of a row.
struct Interval {
  int begin, end;
};

/// The order of the interval tier: long and short rows in turn, from both ends of the queries, so
/// that each multiprocessor has some of both, and neighbours in memory are neighbours in time.
class IntervalOrder {
 public:
  IntervalOrder(const KeyRules& rules, int64_t rows)
      : rules_(rules),
        rows_(static_cast<int>(rows)),
        by_queries_(rules.queries),
        by_heads_(rules.heads) {}

  /// All numbers but offsets fit in 32 bits.
  static bool fits(const KeyRules& rules, int64_t rows) {
    return rows < (int64_t{1} << 30) && rules.fits_in_32_bits();
  }

  WARPFUSE_HOST_DEVICE int rows() const { return rows_; }
  WARPFUSE_HOST_DEVICE int keys() const { return static_cast<int>(rules_.keys); }

  /// Reads no memory.
  struct Place {
    int64_t offset;  // of the row in the tensors
    int batch, query;
  };
  WARPFUSE_HOST_DEVICE Place place(int step) const {
    const int queries = static_cast<int>(rules_.queries);
    const int head_row = by_queries_.quotient(step), turn = step - head_row * queries;
    const int query = turn % 2 == 0 ? turn / 2 : queries - 1 - turn / 2;
    return {static_cast<int64_t>(head_row * queries + query) * keys(), by_heads_.quotient(head_row),
            query};
  }

  WARPFUSE_HOST_DEVICE Interval interval(const Place& place) const {
    const KeyInterval visible = rules_.visible<int>({place.batch, 0, place.query});
    return {static_cast<int>(visible.begin), static_cast<int>(visible.end)};
  }

 private:
  KeyRules rules_;
  int rows_;
  FastDivisor by_queries_, by_heads_;
};

}  // namespace warpfuse::cuda
