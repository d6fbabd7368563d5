#pragma once

#include "rowwise/cuda/group.cuh"
#include "rowwise/cuda/memory.cuh"
#include "rowwise/cuda/pack.cuh"
#include "rowwise/cuda/pdl.cuh"
#include "rowwise/cuda/row_order.cuh"

namespace warpfuse::cuda {

// Tier span: rows of attention, aligned to packs, of which the rules leave one span of keys
// visible. A row takes the code for as many packs a lane as its span has: nothing else is loaded
// or computed, and only the span's first and last pack are asked what of them is visible.

/// A row of at most kMaxSlots packs a lane, whose span takes kSlots of them; none are a row of
/// zeros.
template <int kSlots, int kMaxSlots, typename Function, typename Group>
__device__ __forceinline__ void interval_slots(const Function& function, int64_t offset,
                                               const Interval& span, int packs, Group& group) {
  using T = typename Function::T;
  const int rank = group.rank(), size = group.size();
  const int first = span.begin / kPack<T>, last = (span.end + kPack<T> - 1) / kPack<T>;
  const int mine = first + rank;  // this lane's first pack of the span
  const auto store = [&](int pack, const uint4& bits) {
    store_16_bytes(function.output + offset + static_cast<int64_t>(pack) * kPack<T>, bits);
  };
  const auto store_zeros = [&] {
#pragma unroll 1  // with a window alone
    for (int pack = rank; pack < first; pack += size) {
      store(pack, {0, 0, 0, 0});
    }
#pragma unroll
    for (int i = kSlots; i < kMaxSlots; ++i) {
      if (mine + i * size < packs) {
        store(mine + i * size, {0, 0, 0, 0});
      }
    }
  };
  if constexpr (kSlots == 0) {
    store_zeros();
  } else {
    constexpr int kLast = kSlots - 1;
    typename Function::RawPack bits[kSlots];
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      Function::hide(bits[i],
                     [](uint4& pack, unsigned hidden) { pack = {hidden, hidden, hidden, hidden}; });
      const int pack = mine + i * size;
      function.load(offset + static_cast<int64_t>(pack) * kPack<T>, i < kLast || pack < last,
                    bits[i]);
    }
    store_zeros();  // while the loads are on their way
    const PackMask<T> until_end(span.end - (mine + kLast * size) * kPack<T>);
    const PackMask<T> before_begin(span.begin - mine * kPack<T>);
    const bool cut = span.begin % kPack<T> != 0;
    Function::hide(bits[kLast],
                   [&](uint4& pack, unsigned hidden) { until_end.keep_first(pack, hidden); });
    if (cut) {
      Function::hide(bits[0],
                     [&](uint4& pack, unsigned hidden) { before_begin.keep_rest(pack, hidden); });
    }
    typename Function::template Fragment<kSlots> kept;
    const auto result = function.reduce(bits, kept, group);
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      uint4 written = function.result(kept, i, result);
      // Exact zeros, in a row of NaN too.
      if (i == kLast) {
        until_end.keep_first(written, 0);
      }
      if (i == 0 && cut) {
        before_begin.keep_rest(written, 0);
      }
      if (i < kLast || mine + i * size < packs) {
        store(mine + i * size, written);
      }
    }
  }
}

/// The same for a number of slots that is known when it runs, the same for the group.
template <int kSlots, int kMaxSlots, typename Function, typename Group>
__device__ __forceinline__ void interval_slots(int slots, const Function& function, int64_t offset,
                                               const Interval& span, int packs, Group& group) {
  if (slots == kSlots) {
    interval_slots<kSlots, kMaxSlots>(function, offset, span, packs, group);
  } else if constexpr (kSlots > 0) {
    interval_slots<kSlots - 1, kMaxSlots>(slots, function, offset, span, packs, group);
  }
}

/// A row of at most one pack a lane, for few rows, whose time is that of their waits for memory:
/// the loads do not wait for positions and lengths to say what of them is visible.
template <typename Function, typename Group>
__device__ __forceinline__ void interval_one_pack(const Function& function,
                                                  const IntervalOrder& order, int step,
                                                  Group& group) {
  using T = typename Function::T;
  const auto place = order.place(step);
  if (should_prefetch()) {
    function.prefetch(place.offset, order.keys());
  }
  wait_for_previous_kernel();
  const int first_key = group.rank() * kPack<T>;
  const bool inside = first_key < order.keys();
  typename Function::RawPack bits[1];
  Function::hide(bits[0],
                 [](uint4& pack, unsigned hidden) { pack = {hidden, hidden, hidden, hidden}; });
  function.load(place.offset + first_key, inside, bits[0]);
  const Interval span = order.span(place);
  const PackMask<T> until_end(span.end - first_key), before_begin(span.begin - first_key);
  Function::hide(bits[0], [&](uint4& pack, unsigned hidden) {
    until_end.keep_first(pack, hidden);
    before_begin.keep_rest(pack, hidden);
  });
  typename Function::template Fragment<1> kept;
  const auto result = function.reduce(bits, kept, group);
  uint4 written = function.result(kept, 0, result);
  until_end.keep_first(written, 0);
  before_begin.keep_rest(written, 0);
  if (inside) {
    store_16_bytes(function.output + place.offset + first_key, written);
  }
}

template <int kLanePacks, typename Function, typename Group>
__device__ __forceinline__ void interval_row(const Function& function, const IntervalOrder& order,
                                             int step, Group& group) {
  if constexpr (kLanePacks == 1) {
    interval_one_pack(function, order, step, group);
  } else {
    constexpr int kKeys = kPack<typename Function::T>;
    const auto place = order.place(step);
    wait_for_previous_kernel();
    const Interval span = order.span(place);
    const int packs = (span.end + kKeys - 1) / kKeys - span.begin / kKeys;
    const int slots = span.begin < span.end ? (packs + group.size() - 1) / group.size() : 0;
    interval_slots<kLanePacks, kLanePacks>(slots, function, place.offset, span,
                                           order.keys() / kKeys, group);
  }
}

/// A warp a row.
template <int kLanePacks, typename Function>
__global__ void __launch_bounds__(256)
    interval_warp_kernel(Function function, IntervalOrder order) {
  Warp group;
  // By way of a lane, so that the compiler sees that a warp has one row.
  const int step = __shfl_sync(
      0xffffffffu, static_cast<int>(blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32), 0);
  if (step < order.rows()) {
    interval_row<kLanePacks>(function, order, step, group);
  }
}

/// A block a row.
template <int kLanePacks, typename Function>
__global__ void __launch_bounds__(256)
    interval_block_kernel(Function function, IntervalOrder order) {
  BlockGroup group(1);
  interval_row<kLanePacks>(function, order, static_cast<int>(blockIdx.x), group);
}

}  // namespace warpfuse::cuda
