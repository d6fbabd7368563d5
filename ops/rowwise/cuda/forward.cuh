#pragma once

#include <type_traits>

#include "rowwise/cuda/forward_sums.cuh"
#include "rowwise/cuda/interval.cuh"
#include "rowwise/cuda/interval_functions.cuh"
#include "rowwise/cuda/pdl.cuh"

namespace warpfuse::cuda {

/// What a row of softmax computes; the tiers (registers.cuh, ahead.cuh, stream.cuh) decide where
/// the row lives meanwhile. They call
///   row(step)                  once,
///   fetch or stage, then keep  for the packs that row.layout.read(pack) names,
///   edge                       for the row's edges,
///   reduce                     once where the row is kept, else
///   add, then total, finish    over the packs and edges, in any number of lanes,
///   prepare                    for packs that were not left as reduce() made them,
///   write                      for all packs and edges of the row.
template <typename Load, typename Store>
struct Forward : ForwardSums<Load, Store> {
  using Sums = ForwardSums<Load, Store>;
  using T = typename Sums::T;
  using C = typename Sums::C;
  using RawPack = typename Sums::RawPack;
  using Fragment = typename Sums::Fragment;
  using Edge = typename Sums::Edge;
  using Result = typename Sums::Result;
  using Sums::load;
  using Sums::store;

  /// The bits of a pack have room for what is kept of it.
  static constexpr bool kFragmentFitsRaw = sizeof(Fragment) == sizeof(RawPack);
  /// Parts of a row may be left out.
  static constexpr bool kRules = Load::Mask::kRules;
  /// row() reads memory.
  static constexpr bool kRowReads = Load::Mask::kReads;
  /// There is row_before_wait() too, if draws_before_wait() says so.
  static constexpr bool kDrawsBeforeWait = (Load::kAlters || Store::kFinishes) && !kRules;
  /// The tier span has this function.
  static constexpr bool kSpans = kRules && !Load::Mask::kTensor && Store::kKeepsExponential &&
                                 !Store::kFinishes && sizeof(T) <= 4;

  struct Row {
    const T* in;
    T* out;
    PackedRow<T> layout;
    typename Load::Mask::Row interval;
    bool visible;  // this lane saw a visible key

    const T* in_packs;
    T* out_packs;
  };

  const T* input;  // [rows, columns], rows `input_stride` apart
  T* output;       // [rows, columns]
  int64_t columns;
  int64_t input_stride;
  bool output_same_alignment;  // packs of output are aligned where those of input are

  Forward(const Load& load, const Store& store, const T* input, T* output, int64_t columns,
          int64_t input_stride)
      : Sums{load, store},
        input(input),
        output(output),
        columns(columns),
        input_stride(input_stride),
        output_same_alignment(same_alignment(input, input_stride, output, columns)) {}

  int64_t arrange(int64_t rows, int rows_of_block) {
    return load.mask.arrange(rows, rows_of_block);
  }

  /// Whether it has these rows: packs are aligned in all of them, and the largest score is the
  /// largest before the scale.
  bool spans(int64_t rows) const {
    if constexpr (kSpans) {
      return output_same_alignment && is_aligned(input, columns) && input_stride == columns &&
             load.scale > 0 && load.scale < C(INFINITY) &&
             IntervalOrder::fits(load.mask.rules, rows);
    }
    return false;
  }
  IntervalForward<T> for_spans() const { return {input, output, load.scale}; }
  const KeyRules& rules() const { return load.mask.rules; }

  /// Whether rows and draws can be made before the kernel before this one has ended.
  bool draws_before_wait() const {
    if constexpr (kDrawsBeforeWait) {
      return load.mask.source.settled;
    }
    return false;
  }
  __device__ Row row_before_wait(int64_t step) const {
    return row_of(load.mask.row_before_wait(step, columns));
  }
  __device__ void note_used(const Row& row) const { load.mask.note_used(row.interval); }

  /// Calls wait() before it reads memory, if it reads any.
  template <typename Wait>
  __device__ Row row(int64_t step, const Wait& wait) const {
    return row_of(load.mask.row(step, columns, wait));
  }
  __device__ Row row(int64_t step) const {
    return row(step, [] {});
  }

  /// Elements from a row to the next.
  __device__ int64_t stride() const { return input_stride; }
  /// Brings `elements` elements from a pack on to the L2 cache.
  __device__ void prefetch(const Row& row, int pack, int64_t elements) const {
    prefetch_bytes(row.in_packs + static_cast<int64_t>(pack) * kPack<T>,
                   elements * static_cast<int64_t>(sizeof(T)));
  }

  /// `policy` is what memory.cuh has for the L2 cache, or nothing.
  template <typename... Policy>
  __device__ void fetch(const Row& row, int pack, RawPack& bits, Policy... policy) const {
    bits.x = load_16_bytes(row.in_packs + static_cast<int64_t>(pack) * kPack<T>, policy...);
  }

  /// Starts the copy of a pack to shared memory.
  template <typename... Policy>
  __device__ void stage(const Row& row, int pack, const Staging& staging, int slot,
                        Policy... policy) const {
    copy_16_bytes(staging.at(slot, 0), row.in_packs + static_cast<int64_t>(pack) * kPack<T>,
                  policy...);
  }

  /// What is drawn for a pack. That needs none of its data: there is time while they are on their
  /// way.
  using KeepMask =
      std::conditional_t<Load::kAlters, typename Load::KeepMask, typename Store::KeepMask>;
  static constexpr bool kDrawsEarly = true;
  /// Draws for packs `apart` packs from one another. kByWarp: all lanes of a warp call it.
  template <bool kByWarp = false, int kPacks>
  __device__ void draw(const Row& row, int pack, int apart, KeepMask (&drawn)[kPacks]) const {
    draw_elements<kPack<T>, kByWarp>(row, row.layout.column(pack),
                                     static_cast<int64_t>(apart) * kPack<T>, drawn);
  }

  /// Where a row is read more than once from the bits of its packs, they are altered once.
  static constexpr bool kAltersBits = Load::kAlters && !kFragmentFitsRaw;
  __device__ static void alter(const KeepMask& drawn, RawPack& bits) {
    drawn.template multiply_pack<T>(bits.x);
  }

  __device__ void keep(Row& row, int pack, RawPack bits, Fragment& kept,
                       const KeepMask& drawn) const {
    if constexpr (Load::kAlters) {
      alter(drawn, bits);
    }
    keep_altered(row, pack, bits, kept);
  }
  __device__ void keep_altered(Row& row, int pack, const RawPack& bits, Fragment& kept) const {
    unpack<T>(bits.x, kept.value);
    load.scores(row.interval, row.layout.column(pack), row.layout.full(pack), kept.value,
                row.visible);
  }

  /// What adds nothing to the sum.
  __device__ static Edge no_edge() { return {{negative_infinity<C>()}}; }

  __device__ Edge edge(Row& row, int edge) const {
    const int64_t column = row.layout.edge_column(edge);
    const bool visible = column >= row.interval.begin && column < row.interval.end;
    Edge value{{visible ? to_compute(row.in[column]) : negative_infinity<C>()}};
    if (visible) {
      if constexpr (Load::kAlters) {
        draw_element(row, column).multiply(value.value);
      }
      load.scores(row.interval, column, true, value.value, row.visible);
    }
    return value;
  }

  /// This lane's part in row.visible, for a row that is made anew.
  __device__ static bool visible_flag(const Row& row) { return row.visible; }
  __device__ static void merge_visible(Row& row, bool visible) { row.visible |= visible; }

  __device__ static RawPack staged(const Staging& staging, int slot) {
    return {staging.load(slot, 0)};
  }
  __device__ static void stage_fragment(const Fragment& kept, const Staging& staging, int slot) {
    uint4 bits;
    memcpy(&bits, &kept, sizeof(bits));
    staging.store(slot, 0, bits);
  }
  __device__ static void fragment_from_raw(const RawPack& bits, Fragment& kept) {
    memcpy(&kept, &bits, sizeof(bits));
  }

  // --- the result ---

  __device__ void write(const Row& row, int pack, const Fragment& kept, const Result& result,
                        const KeepMask& drawn) const {
    uint4 bits{0, 0, 0, 0};
    if (!Load::Mask::kRules || (row.layout.read(pack) && !result.empty)) {
      C values[kPack<T>];
      finished(row, row.layout.column(pack), kept, result, drawn, values);
      bits = pack_bits<T>(values);
    }
    T* to = row.out_packs + static_cast<int64_t>(pack) * kPack<T>;
    if (output_same_alignment) {
      store_16_bytes(to, bits);
    } else {
      store_unaligned(to, bits);
    }
  }

  __device__ void write_edge(const Row& row, int edge, const Edge& kept,
                             const Result& result) const {
    const int64_t column = row.layout.edge_column(edge);
    const bool visible = column >= row.interval.begin && column < row.interval.end;
    C value[1] = {C(0)};
    if (visible && !result.empty) {
      finished(row, column, kept, result, draw_element(row, column), value);
    }
    row.out[column] = from_compute<T>(value[0]);
  }

 private:
  __device__ Row row_of(const typename Load::Mask::Row& interval) const {
    const T* in = input + interval.index * input_stride;
    Row row{in, output + interval.index * columns, load.mask.layout(in, columns, interval),
            interval, load.mask.any_visible(interval)};
    row.in_packs = row.in + row.layout.head;
    row.out_packs = row.out + row.layout.head;
    asm volatile("" : "+l"(row.in_packs), "+l"(row.out_packs));
    if (interval.index < 0) {
      row.layout.clear();
    }
    return row;
  }

  template <int kCount, bool kByWarp = false, int kPacks>
  __device__ void draw_elements([[maybe_unused]] const Row& row, [[maybe_unused]] int64_t column,
                                [[maybe_unused]] int64_t apart,
                                [[maybe_unused]] KeepMask (&drawn)[kPacks]) const {
    if constexpr (Load::kAlters) {
      load.drop.template draw<kCount, kByWarp>(row.interval, column, apart, drawn);
    } else if constexpr (Store::kFinishes) {
      store.drop.template draw<kCount, kByWarp>(row.interval, column, apart, drawn);
    }
  }
  __device__ KeepMask draw_element(const Row& row, int64_t column) const {
    KeepMask drawn[1];
    draw_elements<1>(row, column, 0, drawn);
    return drawn[0];
  }

  template <int kCount>
  __device__ void finished(const Row& row, int64_t column,
                           const typename Sums::template Values<kCount>& kept, const Result& result,
                           const KeepMask& drawn, C (&values)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] = Store::value(kept.value[i], result.max, result.factor);
    }
    if constexpr (Store::kFinishes) {
      Store::finish(drawn, C(0) * result.factor, values);
    }
    // Hidden keys are exact zeros, in a row of NaN too; elsewhere exp(-inf) has given them.
    if (Load::Mask::kRules && !result.sound) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if (is_hidden(row, column + i)) {
          values[i] = C(0);
        }
      }
    }
  }

  __device__ bool is_hidden(const Row& row, int64_t key) const {
    return key < row.interval.begin || key >= row.interval.end ||
           (!load.mask.fills() && load.mask.hides(row.interval, key));
  }
};

}  // namespace warpfuse::cuda
