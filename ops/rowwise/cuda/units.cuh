#pragma once

#include <array>
#include <bit>
#include <type_traits>

#include "rowwise/cuda/row_function.cuh"

namespace warpfuse::cuda {

// Rows of the tier chunk that a few lanes load straight to registers and store from there. They
// move units: an element, or a word of two elements of half precision. That takes fewer
// instructions than the way through shared memory (chunk.cuh) for rows with gaps between them, and
// for some rows of words without.

/// Softmax and log_softmax; attention that hides no key.
template <RowFunction F>
constexpr bool kTakesUnits = sizeof(typename F::T) <= 4 && !kHasRules<F> && !kDrops<F>;

// --- rows without gaps, of half precision, that all begin at words ----------------------------

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
bool takes_words(const F& function) {
  constexpr WordRows kRows = kWordRows<F>;
  return function.columns >= kRows.min_columns && function.columns <= kRows.max_columns &&
         function.columns % 2 == 0 && function.begins_at_words();
}

// --- rows with gaps ---------------------------------------------------------------------------

/// How rows of up to `columns` columns are shared by units of one element; words are half as many.
struct GapForm {
  int columns;
  int lanes;  // that share a row
  int slots;  // of a lane
};
inline constexpr std::array<GapForm, 4> kGapForms{
    {{16, 4, 4}, {32, 8, 4}, {64, 8, 8}, {128, 16, 8}}};

/// Slots of a lane for longer rows, of up to 1024 columns, and the lanes that share such a row.
inline constexpr int kManySlots = 32;
inline int many_slots_lanes(int64_t columns) {
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>((columns - 1) / kManySlots + 1)));
}

/// Whether an H200 runs rows with gaps faster by units of so many bytes than by chunks. Where few
/// lanes share a long row, what they load and store at once is less than a sector.
inline bool takes_gap_units(int64_t columns, size_t unit_bytes) {
  constexpr int kMinColumns = 9, kMinManyHalves = 288;
  return columns >= kMinColumns && (columns <= kGapForms.back().columns ||
                                    unit_bytes == sizeof(unsigned) || columns >= kMinManyHalves);
}

// --- the kernel -------------------------------------------------------------------------------

inline constexpr int kUnitThreads = 256;  // of a block

/// Blocks per multiprocessor, for 32, 40 and 64 registers.
template <int kElements, int kSlots, bool kGap>
constexpr int kUnitBlocks = !kGap || kElements * kSlots <= 8 ? 8
                            : kElements * kSlots <= 16       ? 6
                                                             : 4;

/// A unit of kElements elements in a register.
template <typename T, int kElements>
using Unit = std::conditional_t<kElements * sizeof(T) == 2, unsigned short, unsigned>;

template <typename T, int kElements>
__device__ __forceinline__ void unpack_unit(Unit<T, kElements> unit,
                                            Compute<T> (&values)[kElements]) {
  if constexpr (kElements == 2) {
    unpack_word(unit, values, T());
  } else {
    T value;
    memcpy(&value, &unit, sizeof(T));
    values[0] = to_compute(value);
  }
}

template <typename T, int kElements>
__device__ __forceinline__ Unit<T, kElements> pack_unit(const Compute<T> (&values)[kElements]) {
  if constexpr (kElements == 2) {
    return pack_word(values, T());
  } else {
    const T value = from_compute<T>(values[0]);
    Unit<T, 1> unit;
    memcpy(&unit, &value, sizeof(T));
    return unit;
  }
}

/// A row for each kLanes lanes, else (0) for each 2^lanes_log2. kGap: `gap` elements are behind
/// each row of the input.
template <int kElements, int kSlots, int kLanes, bool kGap, RowFunction F>
__global__ void __launch_bounds__(kUnitThreads, kUnitBlocks<kElements, kSlots, kGap>)
    unit_kernel(F function, int64_t rows, int lanes_log2, int gap) {
  using T = typename F::T;
  using U = Unit<T, kElements>;
  const int log2 = kLanes == 0 ? lanes_log2 : std::countr_zero(unsigned{kLanes});
  const int lanes = 1 << log2;
  const std::conditional_t<kGap, ChunkLanes, LaneGroup> group(lanes);
  const int rank = group.rank();
  const int64_t index = (int64_t{blockIdx.x} * kUnitThreads + threadIdx.x) >> log2;
  // Units of this lane. Lanes without a row stay: their warp reduces together.
  const int in_row = (static_cast<int>(function.columns) / kElements - rank + lanes - 1) >> log2;
  const int count = index < rows ? in_row : 0;
  unsigned apart = lanes;
  if constexpr (kLanes == 0) {
    asm("" : "+r"(apart));  // one multiply-add per address, in place of shifts
  }
  wait_for_previous_kernel();
  auto row = function.element_row(index);
  U units[F::kInputs][kSlots];
  for_inputs<F::kInputs>([&](auto k) {
    const auto* const from =
        reinterpret_cast<const U*>(row.rows[k] + (kGap ? index * gap : 0)) + rank;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      // Neutral: -inf, or gradients of zero.
      units[k][i] = F::kInputs == 1 ? static_cast<U>(empty_word(T())) : U(0);
      load_unit_if(i < count, from + uint64_t{apart} * i, units[k][i]);
    }
  });
  typename F::Edge edges[kSlots][kElements];
#pragma unroll
  for (int i = 0; i < kSlots; ++i) {
    RawElement<T, F::kInputs> raws[kElements];
    for_inputs<F::kInputs>([&](auto k) {
      Compute<T> values[kElements];
      unpack_unit<T>(units[k][i], values);
#pragma unroll
      for (int j = 0; j < kElements; ++j) {
        raws[j].inputs[k] = values[j];
      }
    });
#pragma unroll
    for (int j = 0; j < kElements; ++j) {
      edges[i][j] = function.to_edge(row, 0, true, raws[j], {});
    }
  }
  const auto result = function.reduce(row, group, [&](auto, const auto& visit) {
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
#pragma unroll
      for (int j = 0; j < kElements; ++j) {
        visit(edges[i][j]);
      }
    }
  });
  auto* const to = reinterpret_cast<U*>(row.out) + rank;
#pragma unroll
  for (int i = 0; i < kSlots; ++i) {
    Compute<T> values[kElements];
#pragma unroll
    for (int j = 0; j < kElements; ++j) {
      values[j] = function.edge_value(row, 0, true, edges[i][j], result, {}, kReduced);
    }
    store_unit_if(i < count, to + uint64_t{apart} * i, pack_unit<T>(values));
  }
}

}  // namespace warpfuse::cuda
