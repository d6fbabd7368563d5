#pragma once

#include <type_traits>

#include "common/cascade_sum.h"
#include "rowwise/cuda/group.cuh"
#include "rowwise/cuda/load.cuh"
#include "rowwise/cuda/span.cuh"
#include "rowwise/cuda/span_functions.cuh"
#include "rowwise/cuda/store.cuh"

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
struct Forward {
  using T = typename Load::Element;
  using C = Compute<T>;

  /// A pack as it lies in memory.
  struct Bits {
    uint4 x;
  };
  /// Neighbouring elements between their read and their write: scores, then what the store wants.
  template <int kCount>
  struct Values {
    C value[kCount];
  };
  using Kept = Values<kPack<T>>;
  using Edge = Values<1>;
  /// The bits of a pack have room for what is kept of it.
  static constexpr bool kKeptInBits = sizeof(Kept) == sizeof(Bits);
  /// max_of() takes the bits of a pack too, which is quicker than to unpack them.
  static constexpr bool kMaxOfBits = sizeof(T) == 2 && Load::kPlain;
  /// What exponentials are relative to: Relative.
  using Base = Relative<T, kMaxOfBits>;
  /// Parts of a row may be left out.
  static constexpr bool kRules = Load::Mask::kRules;
  /// The tier span has this function.
  static constexpr bool kSpans = kRules && !Load::Mask::kTensor && Store::kKeepsExponential &&
                                 !Store::kFinishes && sizeof(T) <= 4;

  /// What lanes, warps and blocks tell each other of their part of the row.
  struct Summary {
    C max;
    C sum;  // of exp(x - max)
    bool visible;
  };

  struct Row {
    const T* in;
    T* out;
    PackedRow<T> layout;
    typename Load::Mask::Row interval;
    bool visible;  // this lane saw a visible key

    const T* in_packs;
    T* out_packs;
  };

  struct Result {
    C max;
    Base base;   // of the exponentials that were kept
    C factor;    // for those
    bool empty;  // no visible key: zeros
    bool sound;  // the sum is positive and finite
  };

  Load load;
  [[no_unique_address]] Store store;
  const T* input;  // [rows, columns], rows `input_stride` apart
  T* output;       // [rows, columns]
  int64_t columns;
  int64_t input_stride;
  bool alike;  // packs of output are aligned where those of input are

  Forward(const Load& load, const Store& store, const T* input, T* output, int64_t columns,
          int64_t input_stride)
      : load(load),
        store(store),
        input(input),
        output(output),
        columns(columns),
        input_stride(input_stride),
        alike(aligned_alike(input, input_stride, output, columns)) {}

  int64_t arrange(int64_t rows, int rows_of_block) {
    return load.mask.arrange(rows, rows_of_block);
  }

  /// Whether it has these rows: packs are aligned in all of them, and the largest score is the
  /// largest before the scale.
  bool spans(int64_t rows) const {
    if constexpr (kSpans) {
      return alike && is_aligned(input, columns) && input_stride == columns && load.scale > 0 &&
             load.scale < C(INFINITY) && SpanOrder::fits(load.mask.rules, rows);
    }
    return false;
  }
  SpanForward<T> for_spans() const { return {input, output, load.scale}; }
  const KeyRules& rules() const { return load.mask.rules; }

  __device__ Row row(int64_t step) const {
    const auto interval = load.mask.row(step, columns);
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

  /// `policy` is what memory.cuh has for the L2 cache, or nothing.
  template <typename... Policy>
  __device__ void fetch(const Row& row, int pack, Bits& bits, Policy... policy) const {
    bits.x = load_16_bytes(row.in_packs + static_cast<int64_t>(pack) * kPack<T>, policy...);
  }

  /// Starts the copy of a pack to shared memory.
  template <typename... Policy>
  __device__ void stage(const Row& row, int pack, const Staging& staging, int slot,
                        Policy... policy) const {
    copy_16_bytes(staging.at(slot, 0), row.in_packs + static_cast<int64_t>(pack) * kPack<T>,
                  policy...);
  }

  /// What is drawn for a pack: its elements that are not dropped.
  using Drawn = std::conditional_t<Load::kAlters || Store::kFinishes, unsigned, NothingDrawn>;
  /// Draws for packs `apart` packs from one another, which needs none of their data.
  template <int kPacks>
  __device__ void draw(const Row& row, int pack, int apart, Drawn (&drawn)[kPacks]) const {
    draw_elements<kPack<T>>(row, row.layout.column(pack), static_cast<int64_t>(apart) * kPack<T>,
                            drawn);
  }

  /// Where a row is read more than once from the bits of its packs, they are altered once.
  static constexpr bool kAltersBits = Load::kAlters && !kKeptInBits;
  __device__ static void alter(const Drawn& drawn, Bits& bits) { Load::alter(drawn, bits.x); }

  __device__ void keep(Row& row, int pack, Bits bits, Kept& kept, const Drawn& drawn) const {
    if constexpr (Load::kAlters) {
      alter(drawn, bits);
    }
    keep_altered(row, pack, bits, kept);
  }
  __device__ void keep_altered(Row& row, int pack, const Bits& bits, Kept& kept) const {
    unpack<T>(bits.x, kept.value);
    load.scores(row.interval, row.layout.column(pack), row.layout.full(pack), kept.value,
                row.visible);
  }

  /// What adds nothing to the sum.
  __device__ static Edge no_edge() { return {{lowest<C>()}}; }

  __device__ Edge edge(Row& row, int edge) const {
    const int64_t column = row.layout.edge_column(edge);
    const bool visible = column >= row.interval.begin && column < row.interval.end;
    Edge value{{visible ? to_compute(row.in[column]) : lowest<C>()}};
    if (visible) {
      if constexpr (Load::kAlters) {
        Load::alter(draw_element(row, column), value.value);
      }
      load.scores(row.interval, column, true, value.value, row.visible);
    }
    return value;
  }

  /// This lane's part in row.visible, for a row that is made anew.
  __device__ static bool saw_visible(const Row& row) { return row.visible; }
  __device__ static void see_visible(Row& row, bool visible) { row.visible |= visible; }

  __device__ static Bits staged(const Staging& staging, int slot) {
    return {staging.load(slot, 0)};
  }
  __device__ static void keep_staged(const Kept& kept, const Staging& staging, int slot) {
    uint4 bits;
    memcpy(&bits, &kept, sizeof(bits));
    staging.store(slot, 0, bits);
  }
  __device__ static void kept_in_bits(const Bits& bits, Kept& kept) {
    memcpy(&kept, &bits, sizeof(bits));
  }

  // --- the sum over the row ---

  __device__ static Summary nothing() { return {lowest<C>(), C(0), false}; }

  /// What two found together.
  __device__ static Summary join(const Summary& a, const Summary& b) {
    const C max = larger(a.max, b.max);
    const auto scaled = [&](const Summary& s) {
      return s.max == max ? s.sum : s.sum * decay<T>(s.max - max);
    };
    return {max, scaled(a) + scaled(b), a.visible || b.visible};
  }

  /// What the lanes found together.
  __device__ static Summary merge(const LaneGroup& lanes, const Summary& of_lane) {
    const C max = lanes.max(of_lane.max);
    const C sum = of_lane.max == max ? of_lane.sum : of_lane.sum * decay<T>(of_lane.max - max);
    return {max, lanes.sum(sum), Load::Mask::kTensor && lanes.any(of_lane.visible)};
  }

  /// each(first_time, f) calls f(kept) for what this lane keeps and leaves what f makes of it; the
  /// first time it may pass bits where kMaxOfBits is set. One exponential an element, relative to
  /// the maximum of the warp; what is left to the maximum of the row goes into the factor.
  template <typename Group, typename Each>
  __device__ Result reduce(const Row& row, Group& group, const Each& each) const {
    Maximum of_lane;
    each(std::true_type(), [&](const auto& kept) { of_lane.take(kept); });
    const C max = group.lanes().max(of_lane.value());
    // While all are -inf, a zero in place of the maximum keeps their sum at 0, and a NaN in it.
    const Base base(max == lowest<C>() ? C(0) : max);
    C sum = 0;
    each(std::false_type(), [&](auto& kept) { sum += exponentials(kept, base); });
    sum = group.lanes().sum(sum) * base.correction();
    const bool visible = Load::Mask::kTensor && group.lanes().any(row.visible);
    const Summary total = group.template total<Forward>({max, sum, visible});
    Result result = finish(row, total);
    if constexpr (Store::kKeepsExponential) {
      result.base = base;
      result.factor = store.factor(total.sum) * base.correction();
      if (max != total.max) {
        result.factor *= decay<T>(max - total.max);
      }
    }
    return result;
  }

  /// The maximum and the sum so far of what one lane has seen, for rows that are seen twice.
  struct Partial {
    C max = lowest<C>();
    CascadeSum<C> sum{C(0)};
  };

  /// Makes the maximum no less than `max`, of what is added next.
  __device__ static void raise(Partial& partial, C max) {
    if (max > partial.max) {
      partial.sum.scale(decay<T>(partial.max - max));
      partial.max = max;
    }
  }

  /// Adds what is no greater than the maximum.
  template <int kCount>
  __device__ static void accumulate(Partial& partial, const Values<kCount>& kept) {
    Values<kCount> copy = kept;
    const Relative<T, false> base(partial.max == lowest<C>() ? C(0) : partial.max);
    partial.sum.add(exponentials(copy, base));
  }

  template <int kCount>
  __device__ void add(Partial& partial, const Values<kCount>& kept) const {
    raise(partial, max_of(kept));
    accumulate(partial, kept);
  }

  /// The same for several packs at once, by their bits.
  template <int kPacks>
  __device__ static void raise(Partial& partial, const Bits (&bits)[kPacks]) {
    C max = max_of(bits[0]);
#pragma unroll
    for (int i = 1; i < kPacks; ++i) {
      max = larger(max, max_of(bits[i]));
    }
    raise(partial, max);
  }

  template <typename Group>
  __device__ Summary total(const Row& row, Group& group, const Partial& partial) const {
    return group.template total<Forward>(
        merge(group.lanes(), {partial.max, partial.sum.value(), row.visible}));
  }

  __device__ Result finish(const Row& row, const Summary& total) const {
    bool empty = false;
    if constexpr (Load::Mask::kTensor) {
      empty = !total.visible;
    } else if constexpr (Load::Mask::kRules) {
      empty = !row.visible;
    }
    if constexpr (Store::kFinishes) {
      if (row.layout.packs + row.layout.edges > 0) {
        store.note(row.interval, total.max, total.sum, empty);
      }
    }
    const Base base(total.max);
    return {total.max, base,
            Store::kKeepsExponential ? store.factor(total.sum) * base.correction()
                                     : store.factor(total.sum),
            empty, total.sum > 0 && total.sum < C(INFINITY)};
  }

  /// Brings scores to what write() takes.
  template <int kCount>
  __device__ void prepare(Values<kCount>& kept, const Result& result) const {
    if constexpr (Store::kKeepsExponential) {
      exponentials(kept, result.base);
    }
  }

  // --- the result ---

  __device__ void write(const Row& row, int pack, const Kept& kept, const Result& result,
                        const Drawn& drawn) const {
    uint4 bits{0, 0, 0, 0};
    if (!Load::Mask::kRules || (row.layout.read(pack) && !result.empty)) {
      C values[kPack<T>];
      finished(row, row.layout.column(pack), kept, result, drawn, values);
      bits = pack_bits<T>(values);
    }
    T* to = row.out_packs + static_cast<int64_t>(pack) * kPack<T>;
    if (alike) {
      store_16_bytes(to, bits);
    } else {
      scatter_pack(to, bits);
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
  /// The maximum of a lane's values; of packs that are taken as bits, in pairs.
  struct Maximum {
    using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
    C max = lowest<C>();
    Pair pair;
    __device__ Maximum() {
      if constexpr (kMaxOfBits) {
        const T least = from_compute<T>(lowest<C>());
        pair = Pair(least, least);
      }
    }

    template <int kCount>
    __device__ void take(const Values<kCount>& values) {
      max = larger(max, max_of(values));
    }
    __device__ void take(const Bits& bits) {
      Pair pairs[4];
      memcpy(pairs, &bits, sizeof(bits));
#pragma unroll
      for (const Pair& next : pairs) {
        pair = __hmax2(pair, next);
      }
    }
    __device__ C value() const {
      if constexpr (kMaxOfBits) {
        return larger(max, larger(to_compute(pair.x), to_compute(pair.y)));
      }
      return max;
    }
  };

  template <int kCount>
  __device__ static C max_of(const Values<kCount>& kept) {
    C max = kept.value[0];
#pragma unroll
    for (int i = 1; i < kCount; ++i) {
      max = larger(max, kept.value[i]);
    }
    return max;
  }

  __device__ static C max_of(const Bits& bits) {
    using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
    Pair pairs[4];
    memcpy(pairs, &bits, sizeof(bits));
    const Pair max = __hmax2(__hmax2(pairs[0], pairs[1]), __hmax2(pairs[2], pairs[3]));
    return larger(to_compute(max.x), to_compute(max.y));
  }

  /// The sum of exp(x - max), which take the place of x where the store wants them.
  template <int kCount, typename Base>
  __device__ static C exponentials(Values<kCount>& kept, const Base& base) {
    C sum = 0;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const C value = base(kept.value[i]);
      sum += value;
      if constexpr (Store::kKeepsExponential) {
        kept.value[i] = value;
      }
    }
    return sum;
  }

  template <int kCount, int kPacks>
  __device__ void draw_elements([[maybe_unused]] const Row& row, [[maybe_unused]] int64_t column,
                                [[maybe_unused]] int64_t apart,
                                [[maybe_unused]] Drawn (&drawn)[kPacks]) const {
    if constexpr (Load::kAlters) {
      load.drop.template draw<kCount>(row.interval, column, apart, drawn);
    } else if constexpr (Store::kFinishes) {
      store.drop.template draw<kCount>(row.interval, column, apart, drawn);
    }
  }
  __device__ Drawn draw_element(const Row& row, int64_t column) const {
    Drawn drawn[1];
    draw_elements<1>(row, column, 0, drawn);
    return drawn[0];
  }

  template <int kCount>
  __device__ void finished(const Row& row, int64_t column, const Values<kCount>& kept,
                           const Result& result, const Drawn& drawn, C (&values)[kCount]) const {
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
