#pragma once

#include <type_traits>

#include "rowwise/cuda/mask.cuh"
#include "rowwise/cuda/row_function.cuh"

namespace warpfuse::cuda {

/// The inputs of a gradient as they lie in memory: y, the forward pass's output, and g. Inputs with
/// dropout (dropout.cuh) have a `dropout`; after the softmax, also recompute(), for y and g.
struct PlainInputs {
  static constexpr DropoutOrder kOrder = DropoutOrder::none;
  using KeepMask = NoKeepMask;
};

/// The row function of gradients:
///   softmax:      dx = scale * y * (g - sum(y * g)), zero for hidden keys
///   log_softmax:  dx = g - exp(y) * sum(g)
template <typename T_, typename Mask_, bool kLog, typename Inputs = PlainInputs>
struct Backward : SumReduction<Compute<T_>> {
  using T = T_;
  using Mask = Mask_;
  using C = Compute<T>;
  using Raw = RawPack<2>;
  /// y and g as loaded, with zeros where a key is hidden: half the registers of their values.
  using Fragment = Raw;
  struct Edge {
    C y, g;
  };
  using KeepMask = typename Inputs::KeepMask;
  using Partial = typename SumReduction<C>::Partial;
  using Accumulator = typename SumReduction<C>::Accumulator;
  struct Result {
    C sum;
    bool check_hidden;  // hidden keys may not be zero by themselves
  };

  static constexpr int kInputs = 2;
  static constexpr bool kDropout = Inputs::kOrder != DropoutOrder::none;
  static constexpr bool kRecomputes = Inputs::kOrder == DropoutOrder::after_softmax;

  struct Row : InputRow<T, 2> {
    typename Mask::Row interval;
  };

  const T* output;       // [rows, columns]
  const T* grad_output;  // [rows, columns]
  T* grad_input;         // [rows, columns]
  Mask mask;
  Inputs inputs;
  C scale;
  int64_t columns;
  bool inputs_aligned;  // packs of grad_output are aligned where those of output are
  bool output_aligned;  // those of grad_input are

  Backward(const T* output, const T* grad_output, T* grad_input, const Mask& mask, C scale,
           int64_t columns, const Inputs& inputs = {})
      : output(output),
        grad_output(grad_output),
        grad_input(grad_input),
        mask(mask),
        inputs(inputs),
        scale(scale),
        columns(columns),
        inputs_aligned(same_alignment(output, columns, grad_output, columns)),
        output_aligned(
            same_alignment(output, columns, static_cast<const T*>(grad_input), columns)) {}

  const T* first_input() const { return output; }

  bool begins_at_words() const { return are_at_words(output, grad_output, grad_input); }

  int64_t arrange(int64_t rows, int block_rows) { return mask.arrange(rows, block_rows); }

  /// The function that reads the same rows (readers.cuh): dropout before the softmax drops results.
  auto reader() const
    requires(Inputs::kOrder == DropoutOrder::before_softmax)
  {
    return Backward<T, NoMask, kLog>(output, grad_output, grad_input, {}, scale, columns);
  }

  template <typename Wait>
  __device__ Row row(int64_t step, const Wait& wait) const {
    const auto interval = mask.row(step, columns, wait);
    const int64_t offset = interval.index * columns;
    const T *y = output + offset, *g = grad_output + offset;
    const PackedRow<T> packed = mask.packed(y, columns, interval);
    Row row{{packed, {y, g}, {y + packed.head, g + packed.head}, grad_input + offset}, interval};
    if (interval.index < 0) {
      row.packed.clear();
    }
    return row;
  }

  __device__ Row element_row(int64_t step) const {
    return element_row(mask.row(step, columns, NoWait()));
  }
  __device__ Row element_row(int64_t step, const KeyInterval& visible) const
    requires(Mask::kRules && !kDropout)
  {
    return element_row({step, visible.begin, visible.end, 0});
  }

  template <int kPacks>
  __device__ void draw(const Row& row, int pack, int apart, KeepMask (&masks)[kPacks]) const {
    if constexpr (kDropout) {
      inputs.dropout.template draw<kPack<T>>(row.interval, row.packed.column(pack),
                                             static_cast<int64_t>(apart) * kPack<T>, masks);
    }
  }

  template <typename Visit>
  __device__ void visit_mask_type(const Visit& visit) const {
    if constexpr (kRecomputes) {
      mask.visit_type(visit);
    } else if (hides_by_tensor()) {
      visit(MaskByte());
    } else {
      visit(NoMaskTensor());
    }
  }

  /// Zeros what must not reach the sum: elements outside the interval, and g, which may be NaN,
  /// where the mask tensor hides a key.
  template <typename... MaskPacks>
  __device__ void prepare(const Row& row, int pack, const KeepMask& keep_mask, Raw& raw,
                          const MaskPacks&... mask_pack) const
    requires(Mask::kRules || kRecomputes)
  {
    auto& [y, g] = raw.inputs;
    const bool full = row.packed.full(pack);
    const int64_t column = row.packed.column(pack);
    if constexpr (kRecomputes) {
      inputs.recompute(row.interval, column, full, keep_mask, y, g, mask_pack...);
    }
    if constexpr (Mask::kRules) {
      if (!full) {
        const auto inside = [&](int i) {
          return visible_interval(*this, row).contains(column + i);
        };
        zero_elements<T>(y, inside);
        zero_elements<T>(g, inside);
      }
      if (hides_by_tensor()) {
        (zero_hidden(g, mask_pack), ...);
      }
    }
  }

  template <typename... MaskPacks>
  __device__ void to_fragment(const Row&, int, const Raw& raw, Fragment& fragment,
                              const MaskPacks&...) const {
    fragment = raw;
  }

  __device__ const auto& dropout() const
    requires(kDropout)
  {
    return inputs.dropout;
  }

  WARPFUSE_HOST_DEVICE const Mask& key_mask() const { return mask; }

  __device__ Edge to_edge(const Row& row, int64_t, bool inside, const RawElement<T, 2>& raw,
                          const KeepMask& keep_mask) const {
    if (!inside) {
      return {C(0), C(0)};
    }
    const bool hidden = raw.mask.hides && !mask.fills();
    C y[1] = {raw.inputs[0]}, g[1] = {raw.inputs[1]};
    if constexpr (kRecomputes) {
      inputs.recompute(row.interval, raw.mask, keep_mask, y, g);
    }
    return {y[0], hidden ? C(0) : g[0]};
  }

  template <typename Group, typename Each>
  __device__ Result reduce(const Row& row, Group& group, const Each& each) const {
    C sum = 0;
    each(std::true_type(), [&](const auto& values) { sum += lane_sum(values); });
    return finish(row, group.total(*this, this->merge(group.lanes(), {sum})));
  }

  __device__ void add(Accumulator& accumulator, const auto& values) const {
    accumulator.sum.add(lane_sum(values));
  }

  __device__ Result finish(const Row&, const Partial& total) const {
    const bool finite = total.sum - total.sum == C(0);
    return {total.sum, Mask::kRules && (mask.fills() || !finite)};
  }

  template <bool kIsReduced>
  __device__ void write(const Row& row, int pack, const Fragment& fragment, const Result& result,
                        const KeepMask& keep_mask, Stage<kIsReduced>) const {
    uint4 bits{0, 0, 0, 0};
    if (!Mask::kRules || row.packed.read(pack)) {
      Raw raw = fragment;
      block_rematerialization(raw.inputs[0]);
      block_rematerialization(raw.inputs[1]);
      C y[kPack<T>], g[kPack<T>], values[kPack<T>];
      unpack<T>(raw.inputs[0], y);
      unpack<T>(raw.inputs[1], g);
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) {
        const int64_t column = row.packed.column(pack) + i;
        values[i] = Mask::kRules && result.check_hidden && is_hidden(row, column)
                        ? C(0)
                        : gradient(y[i], g[i], result);
      }
      drop(keep_mask, result, values);
      bits = pack_bits<T>(values);
    }
    store_pack(row.out + row.packed.column(pack), bits, output_aligned);
  }

  template <bool kIsReduced>
  __device__ C edge_value(const Row& row, int64_t column, bool inside, const Edge& edge,
                          const Result& result, const KeepMask& keep_mask,
                          Stage<kIsReduced>) const {
    const bool hidden = Mask::kTensor && result.check_hidden && mask.hides(row.interval, column);
    C value[1] = {inside && !hidden ? gradient(edge.y, edge.g, result) : C(0)};
    drop(keep_mask, result, value);
    return value[0];
  }

 private:
  /// Elsewhere hidden keys have no probability, and their g does not matter.
  __device__ bool hides_by_tensor() const {
    return Mask::kTensor && !mask.fills() && mask.is_boolean();
  }
  template <typename M>
  __device__ static void zero_hidden(uint4& g, const MaskPack<M, kPack<T>>& visible) {
    if constexpr (visible.kBoolean) {
      zero_elements<T>(g, [&](int i) { return visible.visible(i); });
    }
  }

  __device__ Row element_row(const typename Mask::Row& interval) const {
    const int64_t offset = interval.index * columns;
    return {
        {PackedRow<T>(columns), {output + offset, grad_output + offset}, {}, grad_input + offset},
        interval};
  }

  /// Dropout before the softmax drops the result's elements, as NaN where the sum is not finite.
  template <int kCount>
  __device__ static void drop(const KeepMask& keep_mask, const Result& result,
                              C (&values)[kCount]) {
    if constexpr (Inputs::kOrder == DropoutOrder::before_softmax) {
      keep_mask.replace(C(0) * result.sum, values);
    }
  }

  __device__ bool is_hidden(const Row& row, int64_t key) const {
    return !visible_interval(*this, row).contains(key) || mask.hides(row.interval, key);
  }

  __device__ C gradient(C y, C g, const Result& result) const {
    return kLog ? g - exponential<T>(y) * (result.sum / kExponentialUnit<T>)
                : y * (g - result.sum) * scale;
  }

  __device__ static C lane_sum(const Edge& edge) { return kLog ? edge.g : edge.y * edge.g; }

  __device__ static C lane_sum(const Fragment& fragment) {
    C y[kPack<T>], g[kPack<T>];
    unpack<T>(fragment.inputs[1], g);
    unpack<T>(fragment.inputs[0], y);
    C sum = 0;
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      sum += kLog ? g[i] : y[i] * g[i];
    }
    return sum;
  }
};

}  // namespace warpfuse::cuda
