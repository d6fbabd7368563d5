#pragma once

#include <type_traits>

#include "rowwise/cuda/forward_sums.cuh"

namespace warpfuse::cuda {

/// The row function of softmax: Load makes scores of elements, Store results of scores.
template <typename Load, typename Store>
struct Forward : ForwardSums<Load, Store> {
  using Sums = ForwardSums<Load, Store>;
  using T = typename Sums::T;
  using C = typename Sums::C;
  using Raw = typename Sums::Raw;
  using Fragment = typename Sums::Fragment;
  using Edge = typename Sums::Edge;
  using Result = typename Sums::Result;
  using KeepMask =
      std::conditional_t<Load::kDropout, typename Load::KeepMask, typename Store::KeepMask>;
  using Mask = typename Load::Mask;
  using Sums::load;
  using Sums::store;

  static constexpr int kInputs = 1;
  static constexpr bool kDropout = Load::kDropout || Store::kDropout;
  static constexpr bool kKeepsExponential = Store::kKeepsExponential;
  static constexpr bool inputs_aligned = true;

  struct Row : InputRow<T, 1> {
    typename Mask::Row interval;
    bool visible;  // this lane saw a visible key
    T* out_packs;
  };

  const T* input;  // [rows, columns]
  T* output;       // [rows, columns]
  int64_t columns;
  bool output_aligned;  // where packs of the input are

  Forward(const Load& load, const Store& store, const T* input, T* output, int64_t columns)
      : Sums{load, store},
        input(input),
        output(output),
        columns(columns),
        output_aligned(same_alignment(input, columns, static_cast<const T*>(output), columns)) {}

  const T* first_input() const { return input; }

  bool begins_at_words() const { return are_at_words(input, output); }

  int64_t arrange(int64_t rows, int block_rows) { return load.mask.arrange(rows, block_rows); }

  /// The function that reads the same rows (readers.cuh).
  auto reader() const
    requires(!Load::kDropout)
  {
    using Reader = Forward<decltype(load.reader()), ProbabilityStore<T>>;
    return Reader(load.reader(), {}, input, output, columns);
  }

  template <typename Wait>
  __device__ Row row(int64_t step, const Wait& wait) const {
    return make_row(load.mask.row(step, columns, wait));
  }

  __device__ Row element_row(int64_t step) const {
    return element_row(load.mask.row(step, columns, NoWait()));
  }
  __device__ Row element_row(int64_t step, const KeyInterval& visible) const
    requires(Mask::kRules && !kDropout)
  {
    return element_row({step, visible.begin, visible.end, 0});
  }

  // Dropout's draws before the wait for the previous kernel (in_registers.cuh).
  bool draws_before_wait() const
    requires(kDropout && !Mask::kRules)
  {
    return load.mask.source.settled;
  }
  __device__ Row row_before_wait(int64_t step) const
    requires(kDropout && !Mask::kRules)
  {
    return make_row(load.mask.row_before_wait(step, columns));
  }
  __device__ void note_used(const Row& row) const { load.mask.note_used(row.interval); }

  template <int kPacks>
  __device__ void draw(const Row& row, int pack, int apart, KeepMask (&masks)[kPacks]) const {
    if constexpr (kDropout) {
      dropout().template draw<kPack<T>>(row.interval, row.packed.column(pack),
                                        static_cast<int64_t>(apart) * kPack<T>, masks);
    }
  }
  /// draw() for a call by all lanes of a warp, of `wanted` pairs of packs (keep_mask.cuh).
  template <int kPacks>
  __device__ void draw_by_warp(const Row& row, int pack, int apart, KeepMask (&masks)[kPacks],
                               unsigned wanted) const
    requires kDropout
  {
    dropout().template draw_by_warp<kPack<T>>(row.interval, row.packed.column(pack),
                                              static_cast<int64_t>(apart) * kPack<T>, masks,
                                              wanted);
  }

  __device__ void prepare(const Row&, int, const KeepMask& mask, Raw& raw) const
    requires(Load::kDropout)
  {
    mask.template multiply_pack<T>(raw.inputs[0]);
  }

  template <typename Visit>
  __device__ void visit_mask_type(const Visit& visit) const {
    load.mask.visit_type(visit);
  }

  template <typename... MaskPacks>
  __device__ void to_fragment(Row& row, int pack, const Raw& raw, Fragment& fragment,
                              const MaskPacks&... mask_pack) const {
    unpack<T>(raw.inputs[0], fragment.value);
    load.scores(row.interval, row.packed.column(pack), row.packed.full(pack), fragment.value,
                row.visible, mask_pack...);
  }

  __device__ const auto& dropout() const {
    if constexpr (Load::kDropout) {
      return load.dropout;
    } else {
      return store.dropout;
    }
  }

  WARPFUSE_HOST_DEVICE const Mask& key_mask() const { return load.mask; }

  __device__ Edge to_edge(Row& row, int64_t, bool inside, const RawElement<T, 1>& raw,
                          const KeepMask& mask) const {
    Edge edge{{inside ? raw.inputs[0] : negative_infinity<C>()}};
    if (inside) {
      if constexpr (Load::kDropout) {
        mask.multiply(edge.value);
      }
      load.score(raw.mask, edge.value[0], row.visible);
    }
    return edge;
  }

  template <bool kIsReduced>
  __device__ void write(const Row& row, int pack, const Fragment& fragment, const Result& result,
                        const KeepMask& mask, Stage<kIsReduced>) const {
    uint4 bits{0, 0, 0, 0};
    if (!Mask::kRules || (row.packed.read(pack) && !result.empty)) {
      C values[kPack<T>];
      finish_values<kIsReduced>(row, row.packed.column(pack), fragment, result, mask, values);
      bits = pack_bits<T>(values);
    }
    store_pack(row.out_packs + static_cast<int64_t>(pack) * kPack<T>, bits, output_aligned);
  }

  template <bool kIsReduced>
  __device__ C edge_value(const Row& row, int64_t column, bool inside, const Edge& edge,
                          const Result& result, const KeepMask& mask, Stage<kIsReduced>) const {
    C value[1] = {C(0)};
    if (inside && !(Mask::kTensor && result.empty)) {
      finish_values<kIsReduced>(row, column, edge, result, mask, value);
    }
    return value[0];
  }

 private:
  __device__ Row element_row(const typename Mask::Row& interval) const {
    const int64_t offset = interval.index * columns;
    return {{PackedRow<T>(columns), {input + offset}, {}, output + offset},
            interval,
            load.mask.any_visible(interval),
            nullptr};
  }

  __device__ Row make_row(const typename Mask::Row& interval) const {
    const T* in = input + interval.index * columns;
    const PackedRow<T> packed = load.mask.packed(in, columns, interval);
    T* out = output + interval.index * columns;
    Row row{{packed, {in}, {in + packed.head}, out},
            interval,
            load.mask.any_visible(interval),
            out + packed.head};
    asm volatile("" : "+l"(row.packs[0]));  // else the address is computed again for each pack
    if (interval.index < 0) {
      row.packed.clear();
    }
    return row;
  }

  template <bool kIsReduced, int kCount>
  __device__ void finish_values(const Row& row, int64_t column,
                                const typename Sums::template Values<kCount>& kept,
                                const Result& result, const KeepMask& mask,
                                C (&values)[kCount]) const {
    auto scores = kept;
    if constexpr (!kIsReduced && kKeepsExponential) {
      Sums::exponentials(scores, result.base);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] = Store::value(scores.value[i], result.max, result.factor);
    }
    if constexpr (Store::kDropout) {
      Store::finish(mask, C(0) * result.factor, values);
    }
    // Hidden keys are exact zeros, in a row of NaN too; elsewhere exp(-inf) has given them. An
    // element alone is inside the interval.
    constexpr bool kMayHide = kCount == 1 ? Mask::kTensor : Mask::kRules;
    if (kMayHide && result.check_hidden) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if (is_hidden(row, column + i)) {
          values[i] = C(0);
        }
      }
    }
  }

  __device__ bool is_hidden(const Row& row, int64_t key) const {
    return !visible_interval(*this, row).contains(key) ||
           (!load.mask.fills() && load.mask.hides(row.interval, key));
  }
};

}  // namespace warpfuse::cuda
