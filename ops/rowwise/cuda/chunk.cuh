#pragma once

#include "rowwise/cuda/chunk_mask.cuh"
#include "rowwise/cuda/chunk_shape.cuh"
#include "rowwise/cuda/row_function.cuh"

namespace warpfuse::cuda {

// Tier chunk: short rows that are not aligned to packs. Packs and edges of each row would leave
// most lanes idle, so a warp copies a chunk of consecutive rows, which is contiguous, to shared
// memory in packs. A few lanes share a row there, by elements, and the results leave in packs too.

/// Rules alone hide keys.
template <RowFunction F>
constexpr bool kRulesAlone = kHasRules<F> && !kHasMaskTensor<F> && !kDrops<F>;

/// The keys that rules leave visible are found before the rows, by a lane for each row.
template <RowFunction F>
constexpr bool kFindsVisible = kHasRules<F> && !kDrops<F>;

/// A lane keeps words as they were loaded, which are half of the registers.
template <RowFunction F>
constexpr bool kKeepsWords =
    sizeof(typename F::T) == 2 && kFragmentIsRaw<F> && !kDrops<F> && !kHasMaskTensor<F>;

/// Reduces and writes a row. kept: a bit for each of this lane's slots. mask_row: its row in
/// `mask`, a ChunkMask where there is a tensor.
template <int kSlots, RowFunction F, typename Mask>
__device__ __forceinline__ void row_by_elements(const F& function, typename F::Row& row,
                                                const LaneGroup& group, const ChunkShape& shape,
                                                const ChunkSlots& lane, uint64_t kept,
                                                const Mask& mask, const unsigned char* mask_row) {
  using T = typename F::T;
  using C = Compute<T>;
  const int first = lane.first;
  int begin = lane.begin, end = lane.end;  // the visible slots
  if constexpr (kHasRules<F>) {
    const auto interval = visible_interval(function, row);
    begin = max(begin, static_cast<int>(interval.begin) - first);
    end = min(end, static_cast<int>(interval.end) - first);
  }
  bool adds = false;
  unsigned visible = 0;  // a bit for each slot
  if constexpr (kHasMaskTensor<F>) {
    adds = !function.key_mask().is_boolean();
    visible = begin < end ? ~0u >> (32 - end) & ~0u << begin : 0u;
    if (!adds) {
      visible &= mask.template visible<kSlots>(mask_row, first, shape.slots);
    }
  }
  // With a mask tensor, hidden keys are outside; a test of a bit is one instruction.
  const auto inside = [&](int i) {
    return kHasMaskTensor<F> ? (visible >> i & 1) != 0
                             : (i >= begin || (!kHasRules<F> && i > 0)) && i < end;
  };
  const auto keep_mask = [&](int i) {
    typename F::KeepMask mask{};
    if constexpr (kDrops<F>) {
      mask.set(0, (kept >> i & 1) != 0);
    }
    return mask;
  };
  // Slots are skipped by fours, which takes a branch for each four.
  const auto for_fours = [&](const auto& visit) {
#pragma unroll
    for (int i = 0; i < kSlots; i += 4) {
      if (i < shape.slots) {
        visit(i);
      }
    }
  };
  const auto is_full = [&](int i) { return i > 0 && i + 4 <= shape.full; };
  // Elements outside are loaded too: under its condition each load would be waited for.
  unsigned words[F::kInputs][(kKeepsWords<F> ? kSlots : 4) / kWord<T>];
  const auto load_words = [&](int i, int at) {
    for_inputs<F::kInputs>([&](auto k) {
      const auto* const from = reinterpret_cast<const unsigned*>(row.rows[k] + first + i);
#pragma unroll
      for (int j = 0; j < 4 / kWord<T>; ++j) {
        words[k][at / kWord<T> + j] = load_shared(from + j);
      }
    });
  };
  if constexpr (kKeepsWords<F>) {
    for_fours([&](int i) { load_words(i, i); });
  }
  const auto make_four = [&](int i, typename F::Edge(&four)[4], const auto& is_inside,
                             const auto& load_added) {
    const int at = kKeepsWords<F> ? i : 0;
    if constexpr (!kKeepsWords<F>) {
      load_words(i, at);
    }
    RawElement<T, F::kInputs> raws[4];
    for_inputs<F::kInputs>([&](auto k) {
      C values[4];
      unpack_words<T>(words[k] + at / kWord<T>, values);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        raws[j].inputs[k] = values[j];
      }
    });
    if constexpr (kHasMaskTensor<F>) {
      C added[4] = {};
      load_added(first + i, added);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        raws[j].mask.added = added[j];
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      // The choice comes last: under its condition, all that comes before would be by predicates.
      if constexpr (kHasMaskTensor<F> && !kDrops<F>) {
        const auto neutral = function.to_edge(row, first + i + j, false, {}, {});
        four[j] = function.to_edge(row, first + i + j, true, raws[j], {});
        four[j] = is_inside(i + j) ? four[j] : neutral;
      } else {
        four[j] = function.to_edge(row, first + i + j, is_inside(i + j), raws[j], keep_mask(i + j));
      }
    }
  };
  const auto always = [](int) { return true; };
  const auto no_mask = [](int, C(&)[4]) {};
  const auto make_inside = [&](int i, typename F::Edge(&four)[4], const auto& load_added) {
    if (!kHasRules<F> && is_full(i)) {
      make_four(i, four, always, load_added);
    } else {
      make_four(i, four, inside, load_added);
    }
  };
  // Calls visit(load_added) with the loads of an additive mask's elements.
  const auto with_mask = [&](const auto& visit) {
    if constexpr (kHasMaskTensor<F>) {
      if (adds) {
        return mask.visit_additive([&](auto zero) {
          visit([&](int column, C(&added)[4]) {
            mask.template load<decltype(zero)>(mask_row, column, added);
          });
        });
      }
    }
    visit(no_mask);
  };
  typename F::Edge fours[kKeepsWords<F> ? 1 : kSlots / 4][4];
  if constexpr (!kKeepsWords<F>) {
    with_mask([&](const auto& load_added) {
      for_fours([&](int i) { make_inside(i, fours[i / 4], load_added); });
    });
  }
  // Whether an additive mask shows a key need be known only if there is no score above -inf.
  constexpr bool kFindsEmpty = kHasMaskTensor<F> && !kDrops<F> && requires { row.visible; };
  if constexpr (kFindsEmpty) {
    row.visible = visible != 0;
  }
  const auto result = function.reduce(row, group, [&](auto, const auto& visit) {
    for_fours([&](int i) {
      auto& four = fours[kKeepsWords<F> ? 0 : i / 4];
      if constexpr (kKeepsWords<F>) {
        make_inside(i, four, no_mask);
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        visit(four[j]);
      }
    });
  });
  auto to_write = result;
  if constexpr (kFindsEmpty) {
    const bool may_be_empty = adds && !(result.max > negative_infinity<C>());
    if (__any_sync(~0u, may_be_empty)) {
      bool shows = false;
      with_mask([&](const auto& load_added) {
        for_fours([&](int i) {
          C added[4] = {};
          load_added(first + i, added);
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            shows |= inside(i + j) && added[j] != negative_infinity<C>();
          }
        });
      });
      to_write.empty |= !group.lanes().any(shows);
    }
  }
  __syncwarp();  // the next row may have been loaded too
  if (!lane.written) {
    return;
  }
  // Hidden keys are zeros by themselves in a row whose sum is finite.
  bool zeroes_hidden = false;
  if constexpr (kHasMaskTensor<F>) {
    zeroes_hidden = to_write.check_hidden;
    to_write.check_hidden = false;
    if constexpr (requires { to_write.empty; }) {
      visible = to_write.empty ? 0 : visible;
      to_write.empty = false;
    }
  }
  for_fours([&](int i) {
    C values[4];
    auto& four = fours[kKeepsWords<F> ? 0 : i / 4];
    if constexpr (kKeepsWords<F>) {
      make_four(i, four, always, no_mask);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const bool is_inside = !kHasRules<F> || kHasMaskTensor<F> || inside(i + j);
      values[j] = function.edge_value(row, first + i + j, is_inside, four[j], to_write,
                                      keep_mask(i + j), kReduced);
    }
    if (zeroes_hidden) [[unlikely]] {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        values[j] = inside(i + j) ? values[j] : C(0);
      }
    }
    T* const to = row.out + first + i;
    if (is_full(i)) {
      store_four(to, values);
    } else {
      store_four(to, values, lane.begin - i, lane.end - i);
    }
  });
}

inline constexpr int kMaxChunkWarps = 4;  // of a block

/// Blocks of that size per multiprocessor, which leave 80 or 96 registers, the fewest without
/// spills.
template <RowFunction F>
constexpr int kChunkBlocks =
    !kDrops<F> && (F::kInputs == 1 ? kHasRules<F> : sizeof(typename F::T) == 2) ? 6 : 5;

/// kSlots: elements of a lane.
template <int kSlots, RowFunction F>
__global__ void __launch_bounds__(32 * kMaxChunkWarps, kChunkBlocks<F>)
    chunk_kernel(F function, int64_t rows, ChunkShape shape, ChunkMaskShape mask_shape) {
  extern __shared__ __align__(128) uint4 memory[];
  __shared__ Mbarrier barriers[kMaxChunkWarps];
  using T = typename F::T;
  const int columns = static_cast<int>(function.columns);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int64_t first = (int64_t{blockIdx.x} * warps + warp) * shape.rows;
  wait_for_previous_kernel();
  if (first >= rows) {
    return;
  }
  const int chunk_rows = static_cast<int>(min(rows - first, int64_t{shape.rows}));
  // Each lane has the visible keys of one of 32 rows: to find them takes as long as some elements.
  int visible_begin = 0, visible_end = 0;
  const auto find_visible = [&](int begin) {
    if constexpr (kFindsVisible<F>) {
      const auto visible =
          function.key_mask().interval(static_cast<int>(first) + min(begin + lane, chunk_rows - 1));
      visible_begin = static_cast<int>(visible.begin);
      visible_end = static_cast<int>(visible.end);
    }
  };
  const auto row_of = [&](int index, int in_chunk) {
    if constexpr (kFindsVisible<F>) {
      return function.element_row(first + in_chunk, {__shfl_sync(~0u, visible_begin, index % 32),
                                                     __shfl_sync(~0u, visible_end, index % 32)});
    } else {
      return function.element_row(first + in_chunk);
    }
  };
  const auto chunk = row_of(0, 0);
  // Elements from a 16-byte boundary to the chunk in shared memory, as in global memory; but rows
  // of whole words begin at one.
  int shift = pack_shift(chunk.rows[0]);
  if (columns % kWord<T> == 0) {
    shift -= shift % kWord<T>;
  }
  // Two inputs arrive earlier by the lanes, where these have instructions left for it.
  constexpr bool kByLanes = F::kInputs > 1 && (sizeof(T) == 4 || (kKeepsWords<F> && !kHasRules<F>));
  const ChunkCopies<kByLanes> copies(barriers[warp], lane);
  if (kRulesAlone<F> && shape.apart) {
    find_visible(0);
  }
  T* staged[F::kInputs];
  for_inputs<F::kInputs>([&](auto i) {
    staged[i] = reinterpret_cast<T*>(memory + (warp * F::kInputs + i) * shape.packs) + shift;
    if (kRulesAlone<F> && shape.apart) {
      copies.load_pieces(chunk.rows[i], staged[i], chunk_rows * columns, chunk_rows,
                         lane * columns + visible_begin, lane * columns + visible_end);
    } else {
      copies.load(chunk.rows[i], staged[i], chunk_rows * columns);
    }
  });
  uint4* const behind_inputs = memory + warps * F::kInputs * shape.packs;
  const auto mask = [&] {
    if constexpr (kHasMaskTensor<F>) {
      return ChunkMask(function.key_mask(), mask_shape, copies,
                       reinterpret_cast<unsigned char*>(behind_inputs) + warp * mask_shape.bytes,
                       static_cast<int>(first), chunk_rows, lane);
    } else {
      return nullptr;
    }
  }();
  ChunkKeepBits keep_bits(reinterpret_cast<unsigned*>(behind_inputs) + warp * shape.keep_words);
  if constexpr (kDrops<F>) {
    keep_bits.draw(function, chunk, chunk_rows * columns, lane);
  }
  copies.wait();
  const auto reduce_rows = [&]<int kRowSlots>(std::integral_constant<int, kRowSlots>,
                                              int lanes_log2) {
    const LaneGroup group(1 << lanes_log2);
    for (int begin = 0; begin < chunk_rows; begin += 32 >> lanes_log2) {
      const int index = begin + (lane >> lanes_log2), in_chunk = min(index, chunk_rows - 1);
      if (kFindsVisible<F> && begin % 32 == 0 && !shape.apart) {
        find_visible(begin);
      }
      auto row = row_of(index, in_chunk);
      const bool has_row = index < chunk_rows;  // other lanes stay: their warp reduces together
      if constexpr (kDrops<F>) {
        if (!has_row) {
          row.interval.index = -1;  // no row whose statistics to note
        }
      }
      for_inputs<F::kInputs>([&](auto i) { row.rows[i] = staged[i] + in_chunk * columns; });
      row.out = staged[0] + in_chunk * columns;
      const ChunkSlots slots(row.out, columns, group.rank(), shape, has_row);
      uint64_t kept = 0;
      if constexpr (kDrops<F>) {
        kept = keep_bits.from(in_chunk * columns + slots.first);
      }
      const unsigned char* mask_row = nullptr;
      if constexpr (kHasMaskTensor<F>) {
        mask_row = mask.row(in_chunk);
      }
      row_by_elements<kRowSlots>(function, row, group, shape, slots, kept, mask, mask_row);
      __syncwarp();  // a word of the next rows may hold an element of these
    }
  };
  // To skip the other slots would take longer than the few elements of such rows do.
  constexpr int kFewSlots = 8;
  if (shape.lanes == 1 && shape.slots <= kFewSlots) {
    reduce_rows(std::integral_constant<int, kFewSlots>(), 0);
  } else {
    reduce_rows(std::integral_constant<int, kSlots>(), 31 - __clz(shape.lanes));
  }
  copies.store(staged[0], chunk.out, chunk_rows * columns);
}

}  // namespace warpfuse::cuda
