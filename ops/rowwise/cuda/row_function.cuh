#pragma once

#include <concepts>
#include <type_traits>

#include "common/cascade_sum.h"
#include "rowwise/cuda/group.cuh"
#include "rowwise/cuda/pack.cuh"
#include "rowwise/key_mask.h"

namespace warpfuse::cuda {

// A row function says what is computed of a row: it reduces the row and writes a result of the same
// shape. A tier (in_registers.cuh, persistent.cuh, chunk.cuh, in_shared.cuh, two_pass.cuh,
// cooperative.cuh) says where the row lives between its read and its write.
// tests/support/l2_normalise.cuh is an example.

// --- what tiers and row functions exchange ----------------------------------------------------

/// A pack of each input, as loaded.
template <int kInputs>
struct RawPack {
  uint4 inputs[kInputs];
};

/// An element of each input, and the mask tensor's where there is one.
template <typename T, int kInputs>
struct RawElement {
  Compute<T> inputs[kInputs];
  MaskElement<Compute<T>> mask;
};

/// The base of a row function's Row.
template <typename T, int kInputs>
struct InputRow {
  PackedRow<T> packed;
  const T* rows[kInputs];   // column 0 of each input
  const T* packs[kInputs];  // the first pack of each input
  T* out;                   // column 0 of the output

  __device__ RawElement<T, kInputs> element(int64_t column) const {
    RawElement<T, kInputs> raw;
#pragma unroll
    for (int i = 0; i < kInputs; ++i) {
      raw.inputs[i] = to_compute(rows[i][column]);
    }
    return raw;
  }
};

/// The stage of what is written: a fragment or edge as it was read, or as reduce() has left it.
template <bool kIsReduced>
using Stage = std::bool_constant<kIsReduced>;
inline constexpr Stage<false> kAsRead{};
inline constexpr Stage<true> kReduced{};

/// row()'s wait for callers that have waited already.
struct NoWait {
  __device__ void operator()() const {}
};

// --- the interface ----------------------------------------------------------------------------

namespace detail {
struct VisitAll {
  template <typename... Arguments>
  __device__ void operator()(Arguments&&...) const {}
};
}  // namespace detail

/// The interface: 8 types, a constant, 2 data members, 13 functions and 4 optional functions.
/// A function whose rows have an interval of visible keys, or whose row() reads memory, also has a
/// type Mask (mask.cuh).
template <typename F>
concept RowFunction =
    // T            the dtype of inputs and output
    // kInputs      how many tensors are read
    // Row          a row: its packs, interval of visible keys, output; one object a lane
    std::derived_from<typename F::Row, InputRow<typename F::T, F::kInputs>> &&
    // Fragment     a pack between its read and its write
    // Edge         an edge element between its read and its write
    // KeepMask     the dropout mask of a pack, which draw() makes; empty without dropout
    // Accumulator  the running reduction of one lane
    // Partial      the reduction of part of a row, as lanes, warps and blocks exchange it
    std::is_trivially_copyable_v<typename F::Partial> &&
    requires(const F f, F host, typename F::Row row, RawPack<F::kInputs> raw,
             typename F::Fragment fragment, typename F::Edge edge, typename F::KeepMask (&masks)[1],
             typename F::Accumulator accumulator, typename F::Partial partial,
             typename F::Result result, BlockGroup group, const Warp warp, int i, int64_t n) {
      // Result       what write() needs of the whole row
      // columns      elements of a row
      { f.columns } -> std::convertible_to<int64_t>;
      // inputs_aligned: the packs of all inputs are aligned where those of the first are
      { f.inputs_aligned } -> std::convertible_to<bool>;
      // arrange(rows, block_rows): on the host, before a launch; the number of steps
      { host.arrange(n, i) } -> std::same_as<int64_t>;
      // reader(), optional: a function that reads the same rows (readers.cuh)
      // row(step, wait): the row of a step, an empty one where the step has none; calls wait()
      // before its first read
      { f.row(n, NoWait()) } -> std::same_as<typename F::Row>;
      // element_row(step): the row of a step as edges alone; the tier chunk moves its pointers
      // element_row(step, visible), optional: the same, where rules alone hide keys, of known ones
      { f.element_row(n) } -> std::same_as<typename F::Row>;
      // draw(row, pack, apart, masks): for the packs pack, pack + apart, ...
      f.draw(row, i, i, masks);
      // prepare(row, pack, mask, raw), optional: changes a pack once, before the reduction
      // to_fragment(row, pack, raw, fragment): of a prepared pack, once for each time it is read
      f.to_fragment(row, i, raw, fragment);
      // visit_mask_type(visit), with a mask tensor: calls visit(M()) with the type of its elements,
      // of which prepare() and to_fragment() also take a pack, last
      // to_edge(row, column, inside, raw, mask): of the row's element `raw`; the neutral one unless
      // inside
      { f.to_edge(row, n, true, row.element(n), masks[0]) } -> std::same_as<typename F::Edge>;
      // reduce(row, group, each): reduces a row that the tier holds. each(first, f) calls
      // f(fragment) or f(edge) for what this lane holds, and leaves what f makes of it; first is
      // std::true_type the first time
      { f.reduce(row, group, detail::VisitAll()) } -> std::same_as<typename F::Result>;
      // update_max(accumulator, raws), optional: a cheap maximum of raw packs; reduce() takes raw
      // packs the first time, and add(..., std::true_type()) fragments whose maximum is known
      // add, total, finish: reduce() in three steps, for rows that no tier holds
      f.add(accumulator, fragment);
      f.add(accumulator, edge);
      { f.total(row, group, accumulator) } -> std::same_as<typename F::Partial>;
      { f.finish(row, partial) } -> std::same_as<typename F::Result>;
      // merge(a, b), and merge(warp, partial) over the lanes of a warp; Partial::none() is neutral
      { f.merge(partial, partial) } -> std::same_as<typename F::Partial>;
      { f.merge(warp, partial) } -> std::same_as<typename F::Partial>;
      { F::Partial::none() } -> std::same_as<typename F::Partial>;
      // write(row, pack, fragment, result, mask, stage)
      f.write(row, i, fragment, result, masks[0], kReduced);
      // edge_value(row, column, inside, edge, result, mask, stage): what the caller writes
      {
        f.edge_value(row, n, true, edge, result, masks[0], kAsRead)
      } -> std::same_as<Compute<typename F::T>>;
    };

// --- what follows from it ---------------------------------------------------------------------

/// Rules of attention hide parts of the function's rows.
template <RowFunction F>
constexpr bool kHasRules = requires { requires F::Mask::kRules; };

/// A mask tensor hides keys too; key_mask() has it.
template <RowFunction F>
constexpr bool kHasMaskTensor = requires { requires F::Mask::kTensor; };

/// row() reads memory.
template <RowFunction F>
constexpr bool kRowReads = requires { requires F::Mask::kReads; };

/// Dropout takes part: dropout() draws keep masks (keep_mask.cuh).
template <RowFunction F>
constexpr bool kDrops = requires { requires F::kDropout; };

/// The columns of a row that are read.
template <typename F>
__device__ __forceinline__ KeyInterval visible_interval(const F& function,
                                                        const typename F::Row& row) {
  if constexpr (requires { row.interval; }) {
    return {row.interval.begin, row.interval.end};
  } else {
    return {0, function.columns};
  }
}

template <RowFunction F>
constexpr bool kPrepares = requires(const F f, const typename F::Row row, typename F::KeepMask mask,
                                    RawPack<F::kInputs> raw) { f.prepare(row, 0, mask, raw); };

template <RowFunction F>
constexpr bool kMaxOfRaw =
    requires(const F f, typename F::Accumulator accumulator, const RawPack<F::kInputs> (&raws)[1]) {
      f.update_max(accumulator, raws);
    };

/// A fragment has room where its raw pack was.
template <RowFunction F>
constexpr bool kFragmentFitsRaw = sizeof(typename F::Fragment) == sizeof(RawPack<F::kInputs>);

/// A fragment is the raw pack, which reduce() does not change.
template <RowFunction F>
constexpr bool kFragmentIsRaw = std::is_same_v<typename F::Fragment, RawPack<F::kInputs>>;

// --- a reduction that several row functions share ---------------------------------------------

/// A sum over the row.
template <typename C>
struct SumReduction {
  struct Partial {
    C sum;
    __device__ static Partial none() { return {C(0)}; }
  };
  struct Accumulator {
    CascadeSum<C> sum{C(0)};
  };

  __device__ static Partial merge(const Partial& a, const Partial& b) { return {a.sum + b.sum}; }
  __device__ static Partial merge(const LaneGroup& lanes, const Partial& lane_partial) {
    return {lanes.sum(lane_partial.sum)};
  }
  template <typename Row, typename Group>
  __device__ Partial total(const Row&, Group& group, const Accumulator& accumulator) const {
    return group.total(*this, merge(group.lanes(), {accumulator.sum.value()}));
  }
};

}  // namespace warpfuse::cuda
