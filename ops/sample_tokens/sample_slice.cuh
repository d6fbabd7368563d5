#pragma once

#include "common/logit_key.h"
#include "rowwise/cuda/memory.cuh"

namespace warpfuse::cuda {

/// A warp's part of a row: neighbouring tokens, so that warps in order have tokens in order, or
/// with kSpread 512 bytes in turn with the other parts, so that large neighbours are shared out. It
/// is read in aligned packs of 16 bytes; the row's first and last pack may reach beyond the row and
/// have -inf there. Each pass reads the part again, after the first pass from the L1 cache.
template <typename Format, bool kSpread = false>
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

  /// Part `part` of `parts` equal ones.
  __device__ WarpSlice(const Bits* row, int columns, int part, int parts)
      : row_(row), columns_(columns) {
    head_ = static_cast<int>(reinterpret_cast<uintptr_t>(row) / sizeof(Bits) % kPack);
    const int packs = (head_ + columns + kPack - 1) / kPack;
    const int share = (packs + parts - 1) / parts;
    begin_ = kSpread ? part * 32 : min(packs, part * share);
    end_ = kSpread ? packs : min(packs, begin_ + share);
    step_ = kSpread ? parts * 32 : 32;
  }

  /// Calls visit(pack) for each pack, in one lane, in any order. kPrefetch: loads the next pack
  /// meanwhile, for the first pass, which waits for memory.
  template <bool kPrefetch, typename Visit>
  __device__ __forceinline__ void each(const Visit& visit) const {
    Pack next;
    if (kPrefetch && begin_ + lane() < end_) {
      next = load(begin_ + lane());
    }
    const int step = kSpread ? step_ : 32;
    for (int at = begin_ + lane(); at < end_; at += step) {
      const Pack pack = kPrefetch ? next : load(at);
      if (kPrefetch && at + step < end_) {
        next = load(at + step);
      }
      visit(pack);
    }
  }

  /// Calls visit(pack) in all lanes at once, in the order of packs, until it is true. Lanes without
  /// a pack get one of -inf.
  template <typename Visit>
  __device__ __forceinline__ void each_in_order(const Visit& visit) const {
    static_assert(!kSpread);
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

  /// Loads the row's elements of a pack one by one. Not inlined: it is rare, and the loops stay
  /// short in the instruction cache.
  __device__ __noinline__ static Pack edge_pack(const Bits* row, int columns, int first) {
    Bits elements[kPack];
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const int token = first + i;
      elements[i] = token >= 0 && token < columns ? row[token] : Format::kMinusInfinity;
    }
    Pack pack{{}, first};
    memcpy(&pack.bits, elements, sizeof(elements));
    return pack;
  }

  const Bits* row_;
  int columns_;
  int head_;  // elements from the first pack's start to the row's
  int begin_, end_, step_;
};

}  // namespace warpfuse::cuda
