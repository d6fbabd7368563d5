#pragma once

#include "rowwise/cuda/row_function.cuh"

namespace warpfuse::cuda {

// Rows of the tier chunk, of half precision, that all begin at words of two elements: a few lanes
// load a row's words straight to registers, and store them. Where these lanes are nearly full, that
// takes fewer instructions than the way through shared memory (chunk.cuh).

/// The lanes that share a row, the words of a lane at most, and the columns for which an H200 runs
/// this form faster than chunks.
struct WordRows {
  int lanes, slots;
  int min_columns, max_columns;
};

template <RowFunction F>
constexpr WordRows kWordRows =
    F::kInputs > 1                                ? WordRows{8, 4, 38, 62}
    : requires { requires F::kKeepsExponential; } ? WordRows{4, 6, 42, 46}
                                                  : WordRows{4, 7, 42, 50};

template <RowFunction F>
constexpr bool kTakesWords = sizeof(typename F::T) == 2 && !kHasRules<F> && !kDrops<F>;

template <RowFunction F>
bool takes_words(const F& function) {
  constexpr WordRows kRows = kWordRows<F>;
  return function.columns >= kRows.min_columns && function.columns <= kRows.max_columns &&
         function.columns % 2 == 0 && function.begins_at_words();
}

inline constexpr int kWordThreads = 256;  // of a block
inline constexpr int kWordBlocks = 8;     // per multiprocessor: 32 registers

/// A row for each kWordRows<F>.lanes lanes.
template <RowFunction F>
__global__ void __launch_bounds__(kWordThreads, kWordBlocks)
    words_kernel(F function, int64_t rows) {
  using T = typename F::T;
  constexpr int kLanes = kWordRows<F>.lanes, kSlots = kWordRows<F>.slots;
  const LaneGroup group(kLanes);
  const int rank = group.rank();
  const int words = static_cast<int>(function.columns) / 2 - rank;  // from this lane's first one on
  const int64_t index = int64_t{blockIdx.x} * (kWordThreads / kLanes) + threadIdx.x / kLanes;
  const bool has_row = index < rows;  // other lanes stay: their warp reduces together
  wait_for_previous_kernel();
  auto row = function.element_row(has_row ? index : rows - 1);
  unsigned raws[F::kInputs][kSlots];
  for_inputs<F::kInputs>([&](auto k) {
    const auto* const from = reinterpret_cast<const unsigned*>(row.rows[k]) + rank;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      raws[k][i] = F::kInputs == 1 ? empty_word(T()) : 0;  // neutral: -inf, or gradients of zero
      load_word_if(i * kLanes < words, from + i * kLanes, raws[k][i]);
    }
  });
  typename F::Edge edges[kSlots][2];
#pragma unroll
  for (int i = 0; i < kSlots; ++i) {
    RawElement<T, F::kInputs> elements[2];
    for_inputs<F::kInputs>([&](auto k) {
      Compute<T> values[2];
      unpack_word(raws[k][i], values, T());
      elements[0].inputs[k] = values[0];
      elements[1].inputs[k] = values[1];
    });
    edges[i][0] = function.to_edge(row, 0, true, elements[0], {});
    edges[i][1] = function.to_edge(row, 0, true, elements[1], {});
  }
  const auto result = function.reduce(row, group, [&](auto, const auto& visit) {
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      visit(edges[i][0]);
      visit(edges[i][1]);
    }
  });
  auto* const to = reinterpret_cast<unsigned*>(row.out) + rank;
  const int written = has_row ? words : 0;
#pragma unroll
  for (int i = 0; i < kSlots; ++i) {
    const Compute<T> values[2] = {
        function.edge_value(row, 0, true, edges[i][0], result, {}, kReduced),
        function.edge_value(row, 0, true, edges[i][1], result, {}, kReduced)};
    store_word_if(i * kLanes < written, to + i * kLanes, pack_word(values, T()));
  }
}

}  // namespace warpfuse::cuda
