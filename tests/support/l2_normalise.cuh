#pragma once

#include "rowwise/cuda/row_function.cuh"

namespace warpfuse::cuda {

/// The smallest row function: y = x / |x|, rows of float divided by their L2 norm.
struct L2Normalise : SumReduction<float> {
  using T = float;
  using Row = InputRow<float, 1>;
  using Fragment = RawPack<1>;
  using Edge = float;
  struct KeepMask {};
  using Result = float;  // 1 / |x|
  static constexpr int kInputs = 1;
  static constexpr bool inputs_aligned = true;

  const float* input;  // [rows, columns]
  float* output;       // [rows, columns]
  int64_t columns;

  int64_t arrange(int64_t rows, int /*block_rows*/) { return rows; }
  template <typename Wait>
  __device__ Row row(int64_t step, const Wait&) const {
    const float* in = input + step * columns;
    const PackedRow<float> packed(in, columns);
    return {packed, {in}, {in + packed.head}, output + step * columns};
  }
  __device__ Row element_row(int64_t step) const {
    return {PackedRow<float>(columns), {input + step * columns}, {}, output + step * columns};
  }
  template <int kPacks>
  __device__ void draw(const Row&, int, int, KeepMask (&)[kPacks]) const {}

  __device__ void to_fragment(const Row&, int, const Fragment& raw, Fragment& fragment) const {
    fragment = raw;
  }
  __device__ float to_edge(const Row&, int64_t, bool inside, const RawElement<float, 1>& x,
                           const KeepMask&) const {
    return inside ? x.inputs[0] : 0.0f;
  }

  template <typename Group, typename Each>
  __device__ Result reduce(const Row& row, Group& group, const Each& each) const {
    float sum = 0;
    each(std::true_type(), [&](const auto& values) { sum += squares(values); });
    return finish(row, group.total(*this, merge(group.lanes(), {sum})));
  }
  __device__ void add(Accumulator& accumulator, const auto& values) const {
    accumulator.sum.add(squares(values));
  }
  __device__ Result finish(const Row&, const Partial& total) const { return rsqrtf(total.sum); }

  template <bool kIsReduced>
  __device__ void write(const Row& row, int pack, const Fragment& fragment, Result factor,
                        const KeepMask&, Stage<kIsReduced>) const {
    float values[4];
    unpack<float>(fragment.inputs[0], values);
    for (float& value : values) {
      value *= factor;
    }
    store_unaligned(row.out + row.packed.column(pack), pack_bits<float>(values));
  }
  template <bool kIsReduced>
  __device__ float edge_value(const Row&, int64_t, bool, float x, Result factor, const KeepMask&,
                              Stage<kIsReduced>) const {
    return x * factor;
  }

 private:
  __device__ static float squares(float x) { return x * x; }
  __device__ static float squares(const Fragment& fragment) {
    float x[4];
    unpack<float>(fragment.inputs[0], x);
    return x[0] * x[0] + x[1] * x[1] + x[2] * x[2] + x[3] * x[3];
  }
};

static_assert(RowFunction<L2Normalise>);

}  // namespace warpfuse::cuda
