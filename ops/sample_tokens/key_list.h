#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>

#include "sample_tokens/blocked_row.h"
#include "sample_tokens/sample_counters.h"
#include "sample_tokens/sample_search.h"

namespace warpfuse::WARPFUSE_ISA {

/// Keys among which one is searched for.
template <typename Key>
class KeyList {
 public:
  explicit KeyList(int64_t capacity) : keys_(std::make_unique_for_overwrite<Key[]>(capacity)) {}

  void assign(const Key* keys, int64_t size) {
    std::copy_n(keys, size, keys_.get());
    size_ = size;
  }

  /// The keys of `row` above `bound`.
  template <typename Format>
  void collect(const BlockedRow<Format>& row, Key bound) {
    constexpr int64_t kGroup = 16;  // most groups of a block hold no such key, or all do
    Key* end = keys_.get();
    row.each_block(bound, [&](int64_t begin, int64_t size) {
      for (int64_t group = begin; group < begin + size; group += kGroup) {
        const int64_t group_end = std::min(group + kGroup, begin + size);
        int64_t above = 0;
        for (int64_t i = group; i < group_end; ++i) {
          above += row[i] > bound ? 1 : 0;
        }
        if (above == group_end - group) {
          for (int64_t i = group; i < group_end; ++i) {
            *end++ = row[i];
          }
        } else if (above > 0) {
          for (int64_t i = group; i < group_end; ++i) {
            *end = row[i];
            end += *end > bound ? 1 : 0;
          }
        }
      }
    });
    size_ = end - keys_.get();
  }

  struct Found {
    Key key;
    uint64_t above;  // the weight of larger keys: less than `target`, which `key` reaches
    uint64_t target;
  };

  /// Searches for the key that reaches target_of(total), from the total of weight(key). Long lists
  /// are narrowed digit by digit, short ones by comparisons with one of their keys: the list is
  /// lost.
  template <typename Weight, typename Target>
  Found search(const Weight& weight, const Target& target_of) {
    Key min = keys_[0], max = keys_[0];
    for (const Key key : keys()) {
      min = std::min(min, key);
      max = std::max(max, key);
    }
    Search digits(max, min);
    uint64_t target = 0;  // it is at least 1 when it is known
    while (size_ > kFew && !digits.done()) {
      narrowed_lists.add();
      const Histogram weights = histogram(digits, weight);
      target = target > 0 ? target : target_of(std::reduce(weights.begin(), weights.end()));
      enter_digit(digits, weights, target);
      keep([&](Key key) { return digits.digit(key) < Search::kDigits; });
    }
    if (digits.done()) {
      return {digits.key(), digits.above(), target};
    }
    target = target > 0 ? target : target_of(sum_above(min - 1, weight));
    for (uint64_t left_out = digits.above();;) {
      const Key pivot = keys_[size_ / 2];
      const uint64_t above = left_out + sum_above(pivot, weight);
      const auto equal = static_cast<uint64_t>(std::ranges::count(keys(), pivot));
      const uint64_t reached = above + equal * weight(pivot);
      if (above >= target) {
        keep([&](Key key) { return key > pivot; });
      } else if (reached < target) {
        keep([&](Key key) { return key < pivot; });
        left_out = reached;
      } else {
        return {pivot, above, target};
      }
    }
  }

 private:
  using Search = KeySearch<Key, 11>;
  using Histogram = std::array<uint64_t, Search::kDigits>;

  static constexpr int64_t kFew = 512;  // keys that take less time to compare than a histogram

  std::span<const Key> keys() const { return {keys_.get(), static_cast<size_t>(size_)}; }

  /// The weights of the keys by their next digit.
  template <typename Weight>
  Histogram histogram(const Search& digits, Weight weight) const {
    Histogram weights{};
    for (int64_t begin = 0; begin < size_; begin += kRowBlock) {
      // Computed with vectors.
      std::array<uint64_t, kRowBlock> block_weights;
      std::array<unsigned, kRowBlock> block_digits;
      const int64_t size = std::min(kRowBlock, size_ - begin);
      for (int64_t i = 0; i < size; ++i) {
        block_weights[i] = weight(keys_[begin + i]);
        block_digits[i] = digits.digit(keys_[begin + i]);
      }
      for (int64_t i = 0; i < size; ++i) {
        weights[block_digits[i]] += block_weights[i];
      }
    }
    return weights;
  }

  /// Enters the digit that reaches `target`.
  static void enter_digit(Search& digits, const Histogram& weights, uint64_t target) {
    uint64_t above = 0;
    unsigned digit = 0;
    while (digits.above() + above + weights[digit] < target) {
      above += weights[digit++];
    }
    digits.enter(digit, above);
  }

  /// The weight of the keys above `bound`.
  template <typename Weight>
  uint64_t sum_above(Key bound, Weight weight) const {
    uint64_t total = 0;
    for (const Key key : keys()) {
      const uint64_t own = weight(key);
      total += key > bound ? own : 0;
    }
    return total;
  }

  /// Keeps the keys that fulfil a condition.
  template <typename Condition>
  void keep(const Condition& condition) {
    Key* end = keys_.get();
    for (const Key key : keys()) {
      *end = key;
      end += condition(key) ? 1 : 0;
    }
    size_ = end - keys_.get();
  }

  std::unique_ptr<Key[]> keys_;
  int64_t size_ = 0;
};

}  // namespace warpfuse::WARPFUSE_ISA
