#pragma once

#include <utility>

#include "rowwise/cuda/row_function.cuh"

namespace warpfuse::cuda {

// A row's packs and edges: how every tier loads them and makes fragments of them.

// --- packs ------------------------------------------------------------------------------------

/// Calls visit(i) for each input, with i a constant: pointers and packs that a loop variable
/// indexes would live in local memory.
template <int kInputs, typename Visit>
__device__ __forceinline__ void for_inputs(const Visit& visit) {
  [&]<int... i>(std::integer_sequence<int, i...>) {
    (visit(std::integral_constant<int, i>()), ...);
  }(std::make_integer_sequence<int, kInputs>());
}

/// `policy` is an L2 cache policy (memory.cuh) or nothing.
template <RowFunction F, typename... Policy>
__device__ __forceinline__ void load(const F& function, const typename F::Row& row, int pack,
                                     RawPack<F::kInputs>& raw, Policy... policy) {
  for_inputs<F::kInputs>([&](auto i) {
    const auto* from = row.packs[i] + static_cast<int64_t>(pack) * kPack<typename F::T>;
    raw.inputs[i] =
        i == 0 || function.inputs_aligned ? load_16_bytes(from, policy...) : load_unaligned(from);
  });
}

/// Starts the copy of a pack to shared memory.
template <RowFunction F, typename... Policy>
__device__ __forceinline__ void load_async(const F& function, const typename F::Row& row, int pack,
                                           const Staging& staging, int slot, Policy... policy) {
  for_inputs<F::kInputs>([&](auto i) {
    const auto* from = row.packs[i] + static_cast<int64_t>(pack) * kPack<typename F::T>;
    if (i == 0 || function.inputs_aligned) {
      copy_16_bytes(staging.at(slot, i), from, policy...);
    } else {
      staging.store(slot, i, load_unaligned(from));
    }
  });
}

template <int kInputs>
__device__ __forceinline__ void load_staged(const Staging& staging, int slot,
                                            RawPack<kInputs>& raw) {
  for_inputs<kInputs>([&](auto i) { raw.inputs[i] = staging.load(slot, i); });
}

template <int kInputs>
__device__ __forceinline__ void store_staged(const Staging& staging, int slot,
                                             const RawPack<kInputs>& raw) {
  for_inputs<kInputs>([&](auto i) { staging.store(slot, i, raw.inputs[i]); });
}

/// Makes a fragment of a pack that was just loaded; with a mask tensor, of its elements too.
template <RowFunction F, typename... MaskPacks>
__device__ __forceinline__ void make_fragment(const F& function, typename F::Row& row, int pack,
                                              RawPack<F::kInputs> raw,
                                              const typename F::KeepMask& mask,
                                              typename F::Fragment& fragment,
                                              const MaskPacks&... mask_pack) {
  if constexpr (kPrepares<F>) {
    function.prepare(row, pack, mask, raw, mask_pack...);
  }
  function.to_fragment(row, pack, raw, fragment, mask_pack...);
}
template <RowFunction F>
__device__ __forceinline__ void prepare_fragment(const F& function, typename F::Row& row, int pack,
                                                 const RawPack<F::kInputs>& raw,
                                                 const typename F::KeepMask& mask,
                                                 typename F::Fragment& fragment) {
  if constexpr (kHasMaskTensor<F>) {
    function.visit_mask_type([&](auto zero) {
      make_fragment(
          function, row, pack, raw, mask, fragment,
          function.key_mask().template load<decltype(zero)>(row.interval, row.packed.column(pack)));
    });
  } else {
    make_fragment(function, row, pack, raw, mask, fragment);
  }
}

// --- edges ------------------------------------------------------------------------------------

template <RowFunction F>
__device__ __forceinline__ typename F::KeepMask draw_edge(const F& function,
                                                          const typename F::Row& row,
                                                          int64_t column) {
  typename F::KeepMask masks[1]{};
  if constexpr (kDrops<F>) {
    function.dropout().template draw<1>(row.interval, column, 0, masks);
  }
  return masks[0];
}

/// Edge i of a row; past the last one, the neutral element.
template <RowFunction F>
__device__ __forceinline__ typename F::Edge load_edge(const F& function, typename F::Row& row,
                                                      int i) {
  const int64_t column = row.packed.edge_column(i);
  const bool inside = i < row.packed.edges && visible_interval(function, row).contains(column);
  if (!inside) {
    return function.to_edge(row, column, false, {}, {});
  }
  auto raw = row.element(column);
  if constexpr (kHasMaskTensor<F>) {
    raw.mask = function.key_mask().element(row.interval, column);
  }
  return function.to_edge(row, column, true, raw, draw_edge(function, row, column));
}

template <RowFunction F, typename Stage>
__device__ __forceinline__ void write_edge(const F& function, const typename F::Row& row, int i,
                                           const typename F::Edge& edge,
                                           const typename F::Result& result, Stage stage) {
  const int64_t column = row.packed.edge_column(i);
  row.out[column] = from_compute<typename F::T>(
      function.edge_value(row, column, visible_interval(function, row).contains(column), edge,
                          result, draw_edge(function, row, column), stage));
}

}  // namespace warpfuse::cuda
