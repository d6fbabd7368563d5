#pragma once

#include "rowwise/cuda/pdl.cuh"
#include "rowwise/cuda/row_packs.cuh"

namespace warpfuse::cuda {

// Tiers warp, block and cluster for rows that live in registers: pack i * size + rank of the row is
// fragment i of the lane `rank` of `size`. A plan has at least as many lanes as a row can have
// edges, so a lane has at most one.

// --- a row in registers -----------------------------------------------------------------------

/// The function can draw its keep masks before the previous kernel has ended: row_before_wait() is
/// row() for that time, and note_used() follows the wait. float64 has no kernels for it.
template <typename F>
constexpr bool kDrawsBeforeWait =
    sizeof(typename F::T) < sizeof(double) && requires(const F f) { f.row_before_wait(int64_t{}); };

/// The keep masks of a lane's packs. Functions of one input have registers to draw all of them
/// while the loads are in flight; others draw each where it is used.
template <int kLanePacks, RowFunction F>
class LaneKeepMasks {
 public:
  using KeepMask = typename F::KeepMask;

  __device__ __forceinline__ LaneKeepMasks(const F& function, const typename F::Row& row, int rank,
                                           int size)
      : function_(function), row_(row), rank_(rank), size_(size) {
    // Also past the row's end: without branches the draws of several packs overlap. Where rules
    // hide keys, a pair of packs of which no lane of the warp reads one is not drawn.
    if constexpr (requires { function.draw_by_warp(row, rank, size, masks_, 0u); }) {
      unsigned wanted = ~0u;
      if constexpr (kHasRules<F>) {
        wanted = 0;
#pragma unroll
        for (int i = 0; i < kLanePacks; i += 2) {
          const bool reads =
              row.packed.read(rank + i * size) || row.packed.read(rank + (i + 1) * size);
          wanted |= (__any_sync(0xffffffffu, reads) != 0 ? 1u : 0u) << i;
        }
      }
      function.draw_by_warp(row, rank, size, masks_, wanted);
    } else if constexpr (kEarly) {
      function.draw(row, rank, size, masks_);
    }
  }

  __device__ __forceinline__ KeepMask operator[](int i) const {
    if constexpr (kEarly) {
      return masks_[i];
    } else {
      KeepMask mask[1];
      function_.draw(row_, rank_ + i * size_, 0, mask);
      return mask[0];
    }
  }

 private:
  static constexpr bool kEarly = F::kInputs == 1;

  const F& function_;
  const typename F::Row& row_;
  int rank_, size_;
  KeepMask masks_[kEarly ? kLanePacks : 1];
};

/// Reduces and writes a row whose fragments the lanes of the group hold. between() runs after the
/// reduction, before the first write.
template <int kLanePacks, RowFunction F, typename Group, typename Between>
__device__ __forceinline__ void reduce_and_write(const F& function, const typename F::Row& row,
                                                 Group& group,
                                                 typename F::Fragment (&fragments)[kLanePacks],
                                                 const LaneKeepMasks<kLanePacks, F>& masks,
                                                 typename F::Edge& edge, const Between& between) {
  const int rank = group.rank(), size = group.size();
  const auto result = function.reduce(row, group, [&](auto, const auto& visit) {
#pragma unroll
    for (int i = 0; i < kLanePacks; ++i) {
      if (row.packed.read(rank + i * size)) {
        visit(fragments[i]);
      }
    }
    visit(edge);
  });
  between();
#pragma unroll
  for (int i = 0; i < kLanePacks; ++i) {
    if (rank + i * size < row.packed.packs) {
      function.write(row, rank + i * size, fragments[i], result, masks[i], kReduced);
    }
  }
  if (rank < row.packed.edges) {
    write_edge(function, row, rank, edge, result, kReduced);
  }
}

/// Loads the packs of the lane `rank` of `size`.
template <int kLanePacks, RowFunction F>
__device__ __forceinline__ void load_packs(const F& function, const typename F::Row& row, int rank,
                                           int size, RawPack<F::kInputs> (&raws)[kLanePacks]) {
#pragma unroll
  for (int i = 0; i < kLanePacks; ++i) {
    if (row.packed.read(rank + i * size)) {
      load(function, row, rank + i * size, raws[i]);
    }
  }
}

/// Fragments would take more registers than a thread of a full block has: a lane keeps the words
/// that it loaded, and unpacks them once for the reduction and once for the results.
template <int kLanePacks, RowFunction F>
constexpr bool kRowInWords = kMaxOfRaw<F> && kLanePacks * sizeof(typename F::Fragment) > 128 &&
                             std::is_empty_v<typename F::KeepMask>;

template <int kLanePacks, RowFunction F, typename Group>
__device__ __forceinline__ void row_in_words(const F& function, typename F::Row& row,
                                             Group& group) {
  RawPack<F::kInputs> raws[kLanePacks];
  const int rank = group.rank(), size = group.size();
  load_packs(function, row, rank, size, raws);
  typename F::Edge edge = load_edge(function, row, rank);
  const auto fragment = [&](int i) {
    typename F::Fragment values;
    block_rematerialization(raws[i].inputs[0]);
    function.to_fragment(row, rank + i * size, raws[i], values);
    return values;
  };
  const auto result = function.reduce(row, group, [&](auto first_time, const auto& visit) {
#pragma unroll
    for (int i = 0; i < kLanePacks; ++i) {
      if (row.packed.read(rank + i * size)) {
        if constexpr (first_time) {
          visit(raws[i]);
        } else {
          auto values = fragment(i);
          visit(values);
        }
      }
    }
    visit(edge);
  });
#pragma unroll
  for (int i = 0; i < kLanePacks; ++i) {
    if (rank + i * size < row.packed.packs) {
      function.write(row, rank + i * size, fragment(i), result, {}, kAsRead);
    }
  }
  if (rank < row.packed.edges) {
    write_edge(function, row, rank, edge, result, kReduced);
  }
}

/// Makes the fragments of a lane's packs under a mask tensor of elements M.
template <typename M, int kLanePacks, RowFunction F, typename Group>
__device__ __forceinline__ void masked_fragments(const F& function, typename F::Row& row,
                                                 Group& group,
                                                 const RawPack<F::kInputs> (&raws)[kLanePacks],
                                                 const LaneKeepMasks<kLanePacks, F>& keep_masks,
                                                 typename F::Fragment (&fragments)[kLanePacks]) {
  const int rank = group.rank(), size = group.size();
  const auto load = [&](int pack) {
    return function.key_mask().template load<M>(row.interval, row.packed.column(pack));
  };
  // All of them at once, unless their registers would cost warps.
  constexpr bool kAhead = kLanePacks > 1 && sizeof(M) <= sizeof(typename F::T);
  decltype(load(0)) mask_packs[kLanePacks];
#pragma unroll
  for (int i = 0; i < kLanePacks; ++i) {
    if (kAhead && row.packed.read(rank + i * size)) {
      mask_packs[i] = load(rank + i * size);
    }
  }
#pragma unroll
  for (int i = 0; i < kLanePacks; ++i) {
    const int pack = rank + i * size;
    if (row.packed.read(pack)) {
      if constexpr (!kAhead) {
        mask_packs[i] = load(pack);
      }
      make_fragment(function, row, pack, raws[i], keep_masks[i], fragments[i], mask_packs[i]);
    }
  }
}

/// The edge is loaded before the packs. Behind them, ptxas computes its address after it has begun
/// to unpack the first pack, and so has waited for it: 577 columns of log_softmax take 25 % longer.
/// Other functions and numbers of packs have no such wait, and lose by this order.
template <int kLanePacks, RowFunction F>
constexpr bool kEdgeFirst = kLanePacks == 3 && F::kInputs == 1 && sizeof(typename F::T) == 2 &&
                            !kDrops<F> && !kHasMaskTensor<F>;

/// Reads, reduces and writes one row. kDrawFirst: the previous kernel may still run; the row waits
/// for it after the keep masks are drawn.
template <int kLanePacks, bool kDrawFirst = false, RowFunction F, typename Group>
__device__ __forceinline__ void row_in_registers(const F& function, typename F::Row& row,
                                                 Group& group) {
  RawPack<F::kInputs> raws[kLanePacks];
  typename F::Fragment fragments[kLanePacks];
  const int rank = group.rank(), size = group.size();
  typename F::Edge edge;
  if constexpr (kEdgeFirst<kLanePacks, F>) {
    edge = load_edge(function, row, rank);
  }
  if constexpr (!kDrawFirst) {
    load_packs(function, row, rank, size, raws);
  }
  const LaneKeepMasks<kLanePacks, F> masks(function, row, rank, size);
  if constexpr (kDrawFirst) {
    wait_for_previous_kernel();
    function.note_used(row);
    load_packs(function, row, rank, size, raws);
  }
  if constexpr (!kEdgeFirst<kLanePacks, F>) {
    edge = load_edge(function, row, rank);
  }
  if constexpr (kHasMaskTensor<F>) {
    function.visit_mask_type([&](auto zero) {
      masked_fragments<decltype(zero)>(function, row, group, raws, masks, fragments);
    });
  } else {
#pragma unroll
    for (int i = 0; i < kLanePacks; ++i) {
      if (row.packed.read(rank + i * size)) {
        prepare_fragment(function, row, rank + i * size, raws[i], masks[i], fragments[i]);
      }
    }
  }
  reduce_and_write(function, row, group, fragments, masks, edge, [] {});
}

// --- one-shot kernels: a group reads one row --------------------------------------------------

/// Blocks of 256 threads that a multiprocessor must have room for; 0: as the compiler likes. It
/// takes 100 registers for dropout's backward in float16, which then is 14 % slower.
template <int kLanePacks, RowFunction F>
constexpr int kWarpKernelBlocks =
    kDrops<F> && kPrepares<F> && !kHasRules<F> && F::kInputs == 2 && kLanePacks == 4 ? 3 : 0;

/// Tier warp: `lanes` lanes of a warp share a row.
template <int kLanePacks, RowFunction F>
__global__ void __launch_bounds__(256, kWarpKernelBlocks<kLanePacks, F>)
    warp_kernel(F function, int64_t steps, int lanes, int lanes_log2) {
  LaneGroup group(lanes);
  const int64_t step =
      static_cast<int64_t>(blockIdx.x) * (blockDim.x >> lanes_log2) + (threadIdx.x >> lanes_log2);
  auto row = first_row(function, min(step, steps - 1), [&](const auto& first) {
    prefetch_rows(function, first, min(steps - step, int64_t{blockDim.x >> lanes_log2}));
  });
  if (step >= steps) {
    row.packed.clear();  // the lanes stay: their warp reduces together
  }
  row_in_registers<kLanePacks>(function, row, group);
}

/// Tiers block and cluster: `blocks` blocks share a row.
template <int kLanePacks, RowFunction F, bool kDrawFirst = false>
__global__ void __launch_bounds__(1024) block_kernel(F function, int blocks) {
  BlockGroup group(blocks);
  if constexpr (kDrawFirst) {
    auto row = function.row_before_wait(group.index());
    prefetch_row(function, row, group);
    row_in_registers<kLanePacks, true>(function, row, group);
  } else {
    auto row = first_row(function, group.index(), [&](const auto& first) {
      if constexpr (kLanePacks <= 4) {  // else 8 % slower, measured
        prefetch_row(function, first, group);
      }
    });
    if constexpr (kRowInWords<kLanePacks, F>) {
      row_in_words<kLanePacks>(function, row, group);
    } else {
      row_in_registers<kLanePacks>(function, row, group);
    }
  }
}

}  // namespace warpfuse::cuda
