#pragma once

#include "skinny_linear/tile_product.cuh"

namespace warpfuse::cuda {

// A norm before a product is a correction behind it. With g the norm's weight, b its bias, and m
// and d a row's mean and inverse deviation,
//
//   sum_k w[k] ((x[k] - m) d g[k] + b[k]) = d (sum_k w[k] g[k] x[k] - m sum_k w[k] g[k])
//                                           + sum_k w[k] b[k]
//
// so that the weights take g while the kernel ahead runs, and the product waits for no moment of
// its row. w g is rounded to the dtype as the norm's result in memory is. In float32, whose
// products have no digits to spare, x is relative to its row's first element: m is a few
// deviations then.
//
// The moments are relative to the row's first element too. It is within sqrt(columns) deviations
// of the mean, so their difference costs the variance at most a factor of `columns` of its
// precision.

struct RowMoments {
  float sum, squares;

  __device__ __forceinline__ void add(float x) {
    sum += x;
    squares = fmaf(x, x, squares);
  }
  __device__ __forceinline__ void add(const RowMoments& other) {
    sum += other.sum;
    squares += other.squares;
  }
};

/// A row's mean, relative to what its product is relative to, and inverse deviation.
struct RowNorm {
  float mean, inverse_deviation;

  /// shift: what the moments are relative to, and the product is not.
  __device__ static RowNorm of(const RowMoments& total, const SkinnyLinearArguments& a,
                               float shift) {
    const float inverse_columns = 1.0f / static_cast<float>(a.columns);
    float variance = total.squares * inverse_columns, mean = 0;
    if (a.norm == Norm::layer) {
      mean = total.sum * inverse_columns;
      variance = fmaf(-mean, mean, variance);
      variance = variance < 0 ? 0.0f : variance;  // a NaN stays
      mean += shift;
    }
    return {mean, rsqrtf(variance + a.epsilon)};
  }

  /// sum: of w g x; weights: of w g; biases: of w b.
  __device__ __forceinline__ float corrected(float sum, float weights, float biases) const {
    return fmaf(inverse_deviation, sum - mean * weights, biases);
  }
};

/// Sums of w g and w b over a warp's columns, of 8 outputs each: a product with two rows, ones, of
/// which w takes g before, and b.
template <typename T>
class NormSums {
 public:
  /// One step; w takes g. b: zeros but in the second quad.
  __device__ __forceinline__ void add(uint4& w, const uint4& g, const uint4& b) {
    const uint4 bias_row[] = {b}, ones_row[] = {quad() == 0 ? ones() : uint4()};
    with_bias_.add(bias_row, w);
    w = product(w, g);
    with_ones_.add(ones_row, w);
  }

  /// Calls visit(0, output, sum of w g) and visit(1, output, sum of w b) for this lane's.
  template <typename Visit>
  __device__ __forceinline__ void each(const Visit& visit) const {
    const auto keep = [&](int wanted_row) {
      return [&visit, wanted_row](int, int row, int output, float sum) {
        if (row == wanted_row) {
          visit(row, output, sum);
        }
      };
    };
    with_ones_.each(keep(0));
    with_bias_.each(keep(1));
  }

 private:
  __device__ __forceinline__ static uint4 product(const uint4& a, const uint4& b) {
    float x[kPack<T>], y[kPack<T>];
    unpack<T>(a, x);
    unpack<T>(b, y);
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      x[i] *= y[i];
    }
    return pack_bits<T>(x);
  }

  __device__ __forceinline__ static uint4 ones() {
    float values[kPack<T>];
#pragma unroll
    for (float& value : values) {
      value = 1.0f;
    }
    return pack_bits<T>(values);
  }

  TileSums<T, 1> with_ones_{2}, with_bias_{2};
};

}  // namespace warpfuse::cuda
