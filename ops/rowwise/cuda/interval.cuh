#pragma once

#include "rowwise/cuda/pdl.cuh"
#include "rowwise/cuda/row_order.cuh"

namespace warpfuse::cuda {

// Tier span: rows of attention, aligned to packs, of which the rules leave one interval of keys
// visible. Each number of packs a lane that an interval can need has code of its own: nothing else
// is loaded or computed, and only the first and last pack of the interval are masked.
//
// An interval function (interval_functions.cuh) has the types T, Fragments<kSlots>, Partial and
// Result; kInputs, inputs[kInputs] and output; kHidden, the word that hidden elements are read as;
// reduce() of all packs of a lane; and result() of one of them. Hidden elements are written as
// zeros whatever result() makes of them.

template <typename Function>
__device__ __forceinline__ void load_interval(const Function& function, int64_t at, bool visible,
                                              RawPack<Function::kInputs>& raw) {
  for_inputs<Function::kInputs>([&](auto i) {
    raw.inputs[i] = {Function::kHidden, Function::kHidden, Function::kHidden, Function::kHidden};
    load_16_bytes_if(visible, function.inputs[i] + at, raw.inputs[i]);
  });
}

/// A row of at most kMaxSlots packs a lane whose interval takes kSlots of them. Without a visible
/// key, kSlots is 0.
template <int kSlots, int kMaxSlots, typename Function, typename Group>
__device__ __forceinline__ void interval_slots(const Function& function, int64_t offset,
                                               const Interval& interval, int packs, Group& group) {
  using T = typename Function::T;
  const int rank = group.rank(), size = group.size();
  const int begin = interval.begin / kPack<T>, end = (interval.end + kPack<T> - 1) / kPack<T>;
  const int first = begin + rank;  // this lane's first pack of the interval
  const auto store = [&](int pack, const uint4& bits) {
    store_16_bytes(function.output + offset + static_cast<int64_t>(pack) * kPack<T>, bits);
  };
  const auto store_zeros = [&] {
#pragma unroll 1  // with a window alone
    for (int pack = rank; pack < begin; pack += size) {
      store(pack, {0, 0, 0, 0});
    }
#pragma unroll
    for (int i = kSlots; i < kMaxSlots; ++i) {
      if (first + i * size < packs) {
        store(first + i * size, {0, 0, 0, 0});
      }
    }
  };
  if constexpr (kSlots == 0) {
    store_zeros();
  } else {
    constexpr int kLast = kSlots - 1;
    RawPack<Function::kInputs> raws[kSlots];
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      const int pack = first + i * size;
      load_interval(function, offset + static_cast<int64_t>(pack) * kPack<T>,
                    i < kLast || pack < end, raws[i]);
    }
    store_zeros();  // while the loads are in flight
    const PackMask<T> until_end(interval.end - (first + kLast * size) * kPack<T>);
    const PackMask<T> before_begin(interval.begin - first * kPack<T>);
    const bool begins_inside = interval.begin % kPack<T> != 0;
    for (uint4& pack : raws[kLast].inputs) {
      until_end.keep_first(pack, Function::kHidden);
    }
    if (begins_inside) {
      for (uint4& pack : raws[0].inputs) {
        before_begin.keep_rest(pack, Function::kHidden);
      }
    }
    typename Function::template Fragments<kSlots> fragments;
    const auto result = function.reduce(raws, fragments, group);
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      uint4 bits = function.result(fragments, i, result);
      // Hidden keys are exact zeros, in a row of NaN too.
      if (i == kLast) {
        until_end.keep_first(bits, 0);
      }
      if (i == 0 && begins_inside) {
        before_begin.keep_rest(bits, 0);
      }
      if (i < kLast || first + i * size < packs) {
        store(first + i * size, bits);
      }
    }
  }
}

/// interval_slots() for a number of slots that is known at run time, the same in the whole group.
template <int kSlots, int kMaxSlots, typename Function, typename Group>
__device__ __forceinline__ void dispatch_slots(int slots, const Function& function, int64_t offset,
                                               const Interval& interval, int packs, Group& group) {
  if (slots == kSlots) {
    interval_slots<kSlots, kMaxSlots>(function, offset, interval, packs, group);
  } else if constexpr (kSlots > 0) {
    dispatch_slots<kSlots - 1, kMaxSlots>(slots, function, offset, interval, packs, group);
  }
}

/// A row of at most one pack a lane. Such rows are few and bound by memory latency: the loads do
/// not wait until positions and lengths tell which keys are visible.
template <typename Function, typename Group>
__device__ __forceinline__ void interval_one_pack(const Function& function,
                                                  const IntervalOrder& order, int step,
                                                  Group& group) {
  using T = typename Function::T;
  const auto place = order.place(step);
  if (should_prefetch()) {
    for (const T* input : function.inputs) {
      prefetch_bytes(input + place.offset, order.keys() * static_cast<int64_t>(sizeof(T)));
    }
  }
  wait_for_previous_kernel();
  const int first_key = group.rank() * kPack<T>;
  const bool inside = first_key < order.keys();
  RawPack<Function::kInputs> raws[1];
  load_interval(function, place.offset + first_key, inside, raws[0]);
  const Interval interval = order.interval(place);
  const PackMask<T> until_end(interval.end - first_key), before_begin(interval.begin - first_key);
  for (uint4& pack : raws[0].inputs) {
    until_end.keep_first(pack, Function::kHidden);
    before_begin.keep_rest(pack, Function::kHidden);
  }
  typename Function::template Fragments<1> fragments;
  const auto result = function.reduce(raws, fragments, group);
  uint4 bits = function.result(fragments, 0, result);
  until_end.keep_first(bits, 0);
  before_begin.keep_rest(bits, 0);
  if (inside) {
    store_16_bytes(function.output + place.offset + first_key, bits);
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
    const Interval interval = order.interval(place);
    const int packs = (interval.end + kKeys - 1) / kKeys - interval.begin / kKeys;
    const int slots = interval.begin < interval.end ? (packs + group.size() - 1) / group.size() : 0;
    dispatch_slots<kLanePacks, kLanePacks>(slots, function, place.offset, interval,
                                           order.keys() / kKeys, group);
  }
}

/// A warp a row.
template <int kLanePacks, typename Function>
__global__ void __launch_bounds__(256)
    interval_warp_kernel(Function function, IntervalOrder order) {
  Warp group;
  // The shuffle shows the compiler that the step is warp-uniform.
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
