#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>

#include "common/cpu_capability.h"

namespace warpfuse::WARPFUSE_ISA {

inline constexpr int64_t kRowBlock = 64;

/// A row as keys, in blocks whose largest keys are known, so that a pass for the keys above a bound
/// reads the blocks that hold one alone.
template <typename Format>
class BlockedRow {
 public:
  using Key = Format::Key;

  explicit BlockedRow(int64_t columns)
      : columns_(columns),
        blocks_((columns + kRowBlock - 1) / kRowBlock),
        maxima_(std::make_unique_for_overwrite<Key[]>(blocks_)),
        sums_(std::make_unique_for_overwrite<uint64_t[]>(blocks_)) {}

  /// Goes to a row and returns its largest key.
  Key read(const Format::Bits* bits) {
    bits_ = bits;
    Key largest = -Format::kInfinity;
    for (int64_t block = 0; block < blocks_; ++block) {
      visit(block, [&](int64_t begin, int64_t size) {
        Key block_largest = -Format::kInfinity;
        for (int64_t i = begin; i < begin + size; ++i) {
          block_largest = std::max(block_largest, (*this)[i]);
        }
        maxima_[block] = block_largest;
        largest = std::max(largest, block_largest);
      });
    }
    return largest;
  }

  Key operator[](int64_t token) const { return Format::key(bits_[token]); }
  int64_t blocks() const { return blocks_; }
  const Key* maxima() const { return maxima_.get(); }

  /// The first token of the largest key.
  int64_t first(Key largest) const {
    int64_t token = 0;
    while (maxima_[token / kRowBlock] < largest) {
      token += kRowBlock;
    }
    while ((*this)[token] < largest) {
      ++token;
    }
    return token;
  }

  /// body(begin, size) for each block that has a key above `bound`.
  template <typename Body>
  void each_block(Key bound, const Body& body) const {
    for (int64_t block = 0; block < blocks_; ++block) {
      if (maxima_[block] > bound) {
        visit(block, body);
      }
    }
  }

  /// The sum of weight(key), which is 0 for keys that are not above `bound`.
  template <typename Weight>
  uint64_t sum(Key bound, const Weight& weight) {
    uint64_t total = 0;
    std::fill_n(sums_.get(), blocks_, uint64_t{0});
    each_block(bound, [&](int64_t begin, int64_t size) {
      uint64_t block_sum = 0;
      for (int64_t i = begin; i < begin + size; ++i) {
        block_sum += weight((*this)[i]);
      }
      sums_[begin / kRowBlock] = block_sum;
      total += block_sum;
    });
    return total;
  }

  /// The first token at which the running sum of weight(key), which sum() has summed, exceeds
  /// `position`.
  template <typename Weight>
  int64_t token_at(uint64_t position, const Weight& weight) const {
    int64_t block = 0;
    while (sums_[block] <= position) {
      position -= sums_[block++];
    }
    std::array<uint64_t, kRowBlock> weights;
    visit(block, [&](int64_t begin, int64_t size) {
      for (int64_t i = 0; i < size; ++i) {
        weights[i] = weight((*this)[begin + i]);
      }
    });
    int64_t i = 0;
    while (weights[i] <= position) {
      position -= weights[i++];
    }
    return block * kRowBlock + i;
  }

 private:
  /// body(begin, size), inlined with a constant size for whole blocks.
  template <typename Body>
  void visit(int64_t block, const Body& body) const {
    const int64_t begin = block * kRowBlock;
    if (begin + kRowBlock <= columns_) {
      body(begin, kRowBlock);
    } else {
      body(begin, columns_ - begin);
    }
  }

  int64_t columns_, blocks_;
  const Format::Bits* bits_ = nullptr;
  std::unique_ptr<Key[]> maxima_;
  std::unique_ptr<uint64_t[]> sums_;  // of a block's weights
};

}  // namespace warpfuse::WARPFUSE_ISA
