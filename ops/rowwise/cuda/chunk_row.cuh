#pragma once

#include "rowwise/cuda/chunk_mask.cuh"
#include "rowwise/cuda/chunk_shape.cuh"
#include "rowwise/cuda/row_packs.cuh"

namespace warpfuse::cuda {

// A row of a chunk (chunk.cuh), by the elements of a few lanes.

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
                                                const ChunkLanes& group, const ChunkShape& shape,
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
  if constexpr (kHasRules<F>) {
    zeroes_hidden = to_write.check_hidden;
    to_write.check_hidden = false;
  }
  if constexpr (kHasMaskTensor<F> && requires { to_write.empty; }) {
    visible = to_write.empty ? 0 : visible;
    to_write.empty = false;
  }
  for_fours([&](int i) {
    C values[4];
    auto& four = fours[kKeepsWords<F> ? 0 : i / 4];
    if constexpr (kKeepsWords<F>) {
      make_four(i, four, always, no_mask);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      // Words hold what hidden keys hold.
      const bool is_inside = !(kHasRules<F> && kKeepsWords<F>) || inside(i + j);
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

}  // namespace warpfuse::cuda
