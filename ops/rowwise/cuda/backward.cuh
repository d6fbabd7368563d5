#pragma once

#include <type_traits>

#include "common/cascade_sum.h"
#include "rowwise/cuda/group.cuh"
#include "rowwise/cuda/interval.cuh"
#include "rowwise/cuda/interval_functions.cuh"
#include "rowwise/cuda/mask.cuh"
#include "rowwise/cuda/pdl.cuh"

namespace warpfuse::cuda {

/// The two inputs of a gradient as they are: y, the forward's output, and g. What else they may be
/// is in dropout.cuh: inputs that kChanges have change(row, column, full, drawn, y, g) for what was
/// read, and inputs that kFinishes have finish(drawn, zero, values) for the results; zero is 0
/// times the sum. Both have a `drop`, which draws.
struct PlainInputs {
  static constexpr bool kChanges = false;
  static constexpr bool kFinishes = false;
  using KeepMask = NoKeepMask;
};

/// The gradient of a row, for the same tiers as Forward:
///   softmax:      dx = scale * y * (g - sum(y * g)), zero for hidden keys
///   log_softmax:  dx = g - exp(y) * sum(g)
template <typename T_, typename Mask, bool kLog, typename Inputs = PlainInputs>
struct Backward {
  using T = T_;
  using C = Compute<T>;

  struct RawPack {
    uint4 y, g;
  };
  /// The two inputs as they came, with zeros for what is hidden: half the registers of values.
  using Fragment = RawPack;
  struct Edge {
    C y, g;
  };
  static constexpr bool kFragmentFitsRaw = true;
  static constexpr bool kMaxOfRaw = false;
  static constexpr bool kRules = Mask::kRules;
  static constexpr bool kRowReads = Mask::kReads;
  static constexpr bool kDrawsBeforeWait = false;
  static constexpr bool kSpans = kRules && !Mask::kTensor && !kLog && sizeof(T) <= 4 &&
                                 !Inputs::kChanges && !Inputs::kFinishes;

  struct Summary {
    C sum;
  };

  struct Row {
    const T* y;
    const T* g;
    T* dx;
    PackedRow<T> layout;
    typename Mask::Row interval;
  };

  struct Result {
    C sum;
    bool check_mask;  // hidden keys may not be zero by themselves
  };

  struct Partial {
    CascadeSum<C> sum{C(0)};
  };

  const T* output;       // [rows, columns]
  const T* grad_output;  // [rows, columns]
  T* grad_input;         // [rows, columns]
  Mask mask;
  [[no_unique_address]] Inputs inputs;
  C scale;
  int64_t columns;
  bool inputs_same_alignment;  // packs of grad_output are aligned where those of output are
  bool output_same_alignment;  // and those of grad_input

  Backward(const T* output, const T* grad_output, T* grad_input, const Mask& mask, C scale,
           int64_t columns, const Inputs& inputs = {})
      : output(output),
        grad_output(grad_output),
        grad_input(grad_input),
        mask(mask),
        inputs(inputs),
        scale(scale),
        columns(columns),
        inputs_same_alignment(same_alignment(output, columns, grad_output, columns)),
        output_same_alignment(
            same_alignment(output, columns, static_cast<const T*>(grad_input), columns)) {}

  int64_t arrange(int64_t rows, int rows_of_block) { return mask.arrange(rows, rows_of_block); }

  bool spans(int64_t rows) const {
    if constexpr (kSpans) {
      return inputs_same_alignment && output_same_alignment && is_aligned(output, columns) &&
             IntervalOrder::fits(mask.rules, rows);
    }
    return false;
  }
  IntervalBackward<T> for_spans() const { return {output, grad_output, grad_input, scale}; }
  const KeyRules& rules() const { return mask.rules; }

  __device__ Row row(int64_t step) const {
    return row(step, [] {});
  }
  template <typename Wait>
  __device__ Row row(int64_t step, const Wait& wait) const {
    const auto interval = mask.row(step, columns, wait);
    const int64_t before = interval.index * columns;
    const T* y = output + before;
    Row row{y, grad_output + before, grad_input + before, mask.layout(y, columns, interval),
            interval};
    if (interval.index < 0) {
      row.layout.clear();
    }
    return row;
  }

  __device__ int64_t stride() const { return columns; }
  __device__ void prefetch(const Row& row, int pack, int64_t elements) const {
    const int64_t bytes = elements * static_cast<int64_t>(sizeof(T));
    prefetch_bytes(row.y + row.layout.column(pack), bytes);
    if (inputs_same_alignment) {
      prefetch_bytes(row.g + row.layout.column(pack), bytes);
    }
  }

  template <typename... Policy>
  __device__ void fetch(const Row& row, int pack, RawPack& bits, Policy... policy) const {
    const int64_t column = row.layout.column(pack);
    bits.y = load_16_bytes(row.y + column, policy...);
    bits.g = inputs_same_alignment ? load_16_bytes(row.g + column, policy...)
                                   : load_unaligned(row.g + column);
  }

  template <typename... Policy>
  __device__ void stage(const Row& row, int pack, const Staging& staging, int slot,
                        Policy... policy) const {
    const int64_t column = row.layout.column(pack);
    copy_16_bytes(staging.at(slot, 0), row.y + column, policy...);
    if (inputs_same_alignment) {
      copy_16_bytes(staging.at(slot, 1), row.g + column, policy...);
    } else {
      staging.store(slot, 1, load_unaligned(row.g + column));
    }
  }

  /// What is drawn for a pack: not before it is there, when registers are few.
  using KeepMask = typename Inputs::KeepMask;
  static constexpr bool kDrawsEarly = false;
  /// Draws for packs `apart` packs from one another.
  template <int kPacks>
  __device__ void draw(const Row& row, int pack, int apart, KeepMask (&drawn)[kPacks]) const {
    draw_elements<kPack<T>>(row, row.layout.column(pack), static_cast<int64_t>(apart) * kPack<T>,
                            drawn);
  }

  static constexpr bool kAltersBits = false;

  /// Zeros what must not reach the sum: what lies outside the interval, and g where it is NaN for a
  /// hidden key.
  __device__ void keep(const Row& row, int pack, const RawPack& bits, Fragment& kept,
                       [[maybe_unused]] const KeepMask& drawn) const {
    kept = bits;
    const bool full = row.layout.full(pack);
    const int64_t column = row.layout.column(pack);
    if constexpr (Inputs::kChanges) {
      inputs.change(row.interval, column, full, drawn, kept.y, kept.g);
    }
    if constexpr (Mask::kRules) {
      if (!full) {
        zero_elements<T>(kept.y, [&](int i) { return in_interval(row, column + i); });
        zero_elements<T>(kept.g, [&](int i) { return in_interval(row, column + i); });
      }
      if constexpr (Mask::kTensor) {
        if (!mask.fills() && mask.kind() == MaskKind::boolean) {
          const unsigned visible = mask.template visible_keys<kPack<T>>(row.interval, column, full);
          zero_elements<T>(kept.g, [&](int i) { return (visible >> i & 1) != 0; });
        }
      }
    }
  }

  __device__ static Edge no_edge() { return {C(0), C(0)}; }

  __device__ Edge edge(const Row& row, int edge) const {
    const int64_t column = row.layout.edge_column(edge);
    if (!in_interval(row, column)) {
      return {C(0), C(0)};
    }
    const bool hidden = !mask.fills() && mask.hides(row.interval, column);
    C y[1] = {to_compute(row.y[column])}, g[1] = {to_compute(row.g[column])};
    if constexpr (Inputs::kChanges) {
      inputs.change(row.interval, column, true, draw_element(row, column), y, g);
    }
    return {y[0], hidden ? C(0) : g[0]};
  }

  __device__ static bool visible_flag(const Row&) { return true; }
  __device__ static void merge_visible(Row&, bool) {}

  __device__ static RawPack staged(const Staging& staging, int slot) {
    return {staging.load(slot, 0), staging.load(slot, 1)};
  }
  __device__ static void stage_fragment(const Fragment& kept, const Staging& staging, int slot) {
    if constexpr (Mask::kRules || Inputs::kChanges) {
      staging.store(slot, 0, kept.y);
      staging.store(slot, 1, kept.g);
    }
  }
  __device__ static void fragment_from_raw(const RawPack& bits, Fragment& kept) { kept = bits; }

  __device__ static Summary nothing() { return {C(0)}; }

  __device__ static Summary join(const Summary& a, const Summary& b) { return {a.sum + b.sum}; }

  __device__ static Summary merge(const LaneGroup& lanes, const Summary& of_lane) {
    return {lanes.sum(of_lane.sum)};
  }

  template <typename Group, typename Each>
  __device__ Result reduce(const Row& row, Group& group, const Each& each) const {
    C sum = 0;
    each(std::true_type(), [&](auto& kept) { sum += sum_of(kept); });
    return finish(row, group.total(*this, merge(group.lanes(), {sum})));
  }

  template <typename K>
  __device__ void add(Partial& partial, const K& kept) const {
    partial.sum.add(sum_of(kept));
  }

  template <typename Group>
  __device__ Summary total(const Row&, Group& group, const Partial& partial) const {
    return group.total(*this, merge(group.lanes(), {partial.sum.value()}));
  }

  __device__ Result finish(const Row&, const Summary& total) const {
    const bool finite = total.sum - total.sum == C(0);
    return {total.sum, Mask::kRules && (mask.fills() || !finite)};
  }

  template <typename K>
  __device__ void prepare(K&, const Result&) const {}

  __device__ void write(const Row& row, int pack, const Fragment& kept, const Result& result,
                        [[maybe_unused]] const KeepMask& drawn) const {
    const int64_t column = row.layout.column(pack);
    uint4 bits{0, 0, 0, 0};
    if (!kRules || row.layout.read(pack)) {
      Fragment again = kept;
      block_rematerialization(again.y);
      block_rematerialization(again.g);
      C y[kPack<T>], g[kPack<T>], values[kPack<T>];
      unpack<T>(again.y, y);
      unpack<T>(again.g, g);
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) {
        values[i] = gradient(row, column + i, y[i], g[i], result);
      }
      if constexpr (Inputs::kFinishes) {
        Inputs::finish(drawn, C(0) * result.sum, values);
      }
      bits = pack_bits<T>(values);
    }
    if (output_same_alignment) {
      store_16_bytes(row.dx + column, bits);
    } else {
      store_unaligned(row.dx + column, bits);
    }
  }

  __device__ void write_edge(const Row& row, int edge, const Edge& kept,
                             const Result& result) const {
    const int64_t column = row.layout.edge_column(edge);
    C value[1] = {in_interval(row, column) ? gradient(row, column, kept.y, kept.g, result) : C(0)};
    if constexpr (Inputs::kFinishes) {
      Inputs::finish(draw_element(row, column), C(0) * result.sum, value);
    }
    row.dx[column] = from_compute<T>(value[0]);
  }

 private:
  template <int kCount, int kPacks>
  __device__ void draw_elements([[maybe_unused]] const Row& row, [[maybe_unused]] int64_t column,
                                [[maybe_unused]] int64_t apart,
                                [[maybe_unused]] KeepMask (&drawn)[kPacks]) const {
    if constexpr (Inputs::kChanges || Inputs::kFinishes) {
      inputs.drop.template draw<kCount>(row.interval, column, apart, drawn);
    }
  }
  __device__ KeepMask draw_element(const Row& row, int64_t column) const {
    KeepMask drawn[1];
    draw_elements<1>(row, column, 0, drawn);
    return drawn[0];
  }

  __device__ C gradient(const Row& row, int64_t key, C y, C g, const Result& result) const {
    if (Mask::kRules && result.check_mask &&
        (!in_interval(row, key) || mask.hides(row.interval, key))) {
      return C(0);
    }
    return kLog ? g - exponential<T>(y) * (result.sum / kExponentialUnit<T>)
                : y * (g - result.sum) * scale;
  }

  __device__ static C sum_of(const Edge& edge) { return kLog ? edge.g : edge.y * edge.g; }

  __device__ static C sum_of(const Fragment& kept) {
    C y[kPack<T>], g[kPack<T>];
    unpack<T>(kept.g, g);
    unpack<T>(kept.y, y);
    C sum = 0;
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      sum += kLog ? g[i] : y[i] * g[i];
    }
    return sum;
  }

  __device__ static bool in_interval(const Row& row, int64_t key) {
    return key >= row.interval.begin && key < row.interval.end;
  }
};

}  // namespace warpfuse::cuda
