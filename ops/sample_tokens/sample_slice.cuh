#pragma once

#include "rowwise/cuda/memory.cuh"
#include "sample_tokens/sample_key.h"

namespace warpfuse::cuda {

/// The part of a row that one warp works on: neighbouring tokens, so that parts in order are tokens
/// in order. It is read in packs of 16 bytes from where memory allows them: the row's first and
/// last pack may reach beyond it, and have -inf there. Each pass reads it anew, from the
/// first-level cache after the first.
template <typename Format>
class WarpSlice {
 public:
  using Bits = typename Format::Bits;
  using Key = typename Format::Key;
  static constexpr int kPack = 16 / static_cast<int>(sizeof(Bits));

  /// Neighbouring tokens, from `first` on.
  struct Pack {
    uint4 bits;
    int first;

    __device__ __forceinline__ Key operator[](int i) const {
      Bits elements[kPack];
      memcpy(elements, &bits, sizeof(bits));
      return Format::key(elements[i]);
    }
  };

  /// Part `part` of `parts`.
  __device__ WarpSlice(const Bits* row, int columns, int part, int parts)
      : row_(row), columns_(columns) {
    head_ = static_cast<int>(reinterpret_cast<uintptr_t>(row) / sizeof(Bits) % kPack);
    const int packs = (head_ + columns + kPack - 1) / kPack;
    const int share = (packs + parts - 1) / parts;
    begin_ = min(packs, part * share);
    end_ = min(packs, begin_ + share);
  }

  /// visit(pack) of each pack, by one lane, in no order. The first pass waits for memory: kAhead,
  /// the next pack is on its way while one is worked on.
  template <bool kAhead, typename Visit>
  __device__ __forceinline__ void each(const Visit& visit) const {
    Pack next;
    if (kAhead && begin_ + lane() < end_) {
      next = load(begin_ + lane());
    }
    for (int at = begin_ + lane(); at < end_; at += 32) {
      const Pack pack = kAhead ? next : load(at);
      if (kAhead && at + 32 < end_) {
        next = load(at + 32);
      }
      visit(pack);
    }
  }

  /// The same in order and by all lanes at once, until visit(pack) is true. Lanes without a pack
  /// get one of -inf.
  template <typename Visit>
  __device__ __forceinline__ void each_in_order(const Visit& visit) const {
    for (int at = begin_; at < end_; at += 32) {
      if (visit(at + lane() < end_ ? load(at + lane()) : edge_pack(row_, 0, 0))) {
        return;
      }
    }
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  __device__ __forceinline__ Pack load(int index) const {
    const int first = index * kPack - head_;
    if (first >= 0 && first + kPack <= columns_) {
      return {load_16_bytes(row_ + first), first};
    }
    return edge_pack(row_, columns_, first);
  }

  /// Element by element, those of the row's columns. A function of its own, as it is seldom called:
  /// code that is not there need not be fetched.
  __device__ __noinline__ static Pack edge_pack(const Bits* row, int columns, int first) {
    Bits elements[kPack];
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const int token = first + i;
      elements[i] = token >= 0 && token < columns ? row[token] : Format::kNothing;
    }
    Pack pack{{}, first};
    memcpy(&pack.bits, elements, sizeof(elements));
    return pack;
  }

  const Bits* row_;
  int columns_;
  int head_;  // elements from a pack's start to the row's
  int begin_, end_;
};

}  // namespace warpfuse::cuda
