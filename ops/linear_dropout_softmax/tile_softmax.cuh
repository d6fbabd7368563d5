#pragma once

#include <cstring>

#include "common/dropout.h"
#include "linear_dropout_softmax/tile_product.cuh"
#include "rowwise/cuda/math.cuh"

namespace warpfuse::cuda {

/// A row, or a part of it: the maximum, and the sum of exponentials relative to it in units of
/// kExponentialUnit.
template <typename T>
struct alignas(8) RowPartial {
  float max, sum;

  __device__ static RowPartial empty() { return {-INFINITY, 0}; }

  /// The base of exponentials. A maximum of -inf leaves only exponentials of -inf, for any base.
  __device__ static float exp_base(float max) { return max == -INFINITY ? 0.0f : max; }

  /// Merges parts of the same row into this one.
  template <int kCount>
  __device__ void merge(const RowPartial (&parts)[kCount]) {
    float new_max = max;
#pragma unroll
    for (const RowPartial& part : parts) {
      new_max = larger(new_max, part.max);
    }
    sum *= rescale_factor<T>(max - exp_base(new_max));
    max = new_max;
#pragma unroll
    for (const RowPartial& part : parts) {
      sum += part.sum * rescale_factor<T>(part.max - exp_base(max));
    }
  }
};

/// Reduces x over groups of `lanes` neighbouring lanes.
template <typename Combine>
__device__ __forceinline__ float reduce_lanes(int lanes, float x, const Combine& combine) {
  for (int step = 1; step < lanes; step *= 2) {
    x = combine(x, __shfl_xor_sync(0xffffffffu, x, step));
  }
  return x;
}

/// The keep mask of a tile: element e of the output is bit e % 8 of its byte.
struct TileKeepMask {
  unsigned char bytes[kTileRows][kTileColumns / kDropoutBlock];

  /// Draws the mask, by `threads` threads. The tile's rows start at whole Philox blocks.
  __device__ void draw(const Dropout& dropout, const Rng& rng, int64_t columns, int first_column,
                       int threads) {
    constexpr int kRowBytes = sizeof(bytes[0]);
    for (int i = static_cast<int>(threadIdx.x); i < kTileRows * kRowBytes; i += threads) {
      const int row = i / kRowBytes, byte = i % kRowBytes;
      const auto block = static_cast<uint64_t>(row * columns + first_column) / kDropoutBlock + byte;
      bytes[row][byte] = static_cast<unsigned char>(kept_of_block(dropout, rng, block));
    }
  }
  /// Bit j: whether this thread's value of row(i) and column(j) is kept.
  template <typename Product>
  __device__ uint32_t thread_bits(int i) const {
    static_assert(Product::kColumns <= 32);
    uint32_t bits = 0;
#pragma unroll
    for (int j = 0; j < Product::kColumns; ++j) {
      const int column = Product::column(j);
      const unsigned byte = bytes[Product::row(i)][column / kDropoutBlock];
      bits |= (byte >> column % kDropoutBlock & 1) << j;
    }
    return bits;
  }
};

/// Turns a thread's products of row(i) into exponentials relative to the row's maximum in the tile:
/// adds the bias, applies the keep mask (a bit per column) and `scale`. Returns the tile's part of
/// the row, the same in its kRowLanes lanes.
template <typename T, typename Product>
__device__ __forceinline__ RowPartial<T> exponentiate(Product& product, int i, uint32_t keep_bits,
                                                      float scale, const float* bias, int columns) {
  RowPartial<T> row = RowPartial<T>::empty();
#pragma unroll
  for (int j = 0; j < Product::kColumns; ++j) {
    const int column = Product::column(j);
    float& x = product.values[i][j];
    x = (x + bias[column]) * ((keep_bits >> j & 1) != 0 ? scale : 0.0f);
    x = column < columns ? x : -INFINITY;
    row.max = larger(row.max, x);
  }
  row.max =
      reduce_lanes(Product::kRowLanes, row.max, [](float a, float b) { return larger(a, b); });
#pragma unroll
  for (float& x : product.values[i]) {
    x = exponential<T>(x - RowPartial<T>::exp_base(row.max));
    row.sum += x;
  }
  row.sum = reduce_lanes(Product::kRowLanes, row.sum, [](float a, float b) { return a + b; });
  return row;
}

/// The totals of a tile's rows from the partials of all blocks of the grid. Each block of a cluster
/// merges an equal share of the rows and sends the totals to all of them.
template <typename T, int kBlocks, int kThreads>
struct RowTotals {
  static constexpr int kShareRows = kTileRows / kBlocks, kRowThreads = kThreads / kShareRows;

  RowPartial<T> totals[kTileRows];
  RowPartial<T> thread_partials[kRowThreads][kShareRows];
  Mbarrier totals_arrived;

  /// By one thread, as Mbarrier::init().
  __device__ void init() {
    totals_arrived.init(1);
    totals_arrived.arrive_expect_bytes(sizeof(totals));
  }

  /// By kThreads threads, with sync() as their barrier. partials: [blocks, kTileRows].
  template <typename Sync>
  __device__ void merge(const RowPartial<T>* partials, int blocks, const Sync& sync) {
    const int thread = static_cast<int>(threadIdx.x), share_row = thread % kShareRows;
    const int row = static_cast<int>(blockIdx.x) % kBlocks * kShareRows + share_row;
    thread_partials[thread / kShareRows][share_row] =
        merge_strided(partials + row, thread / kShareRows, blocks);
    sync();
    if (thread < kShareRows) {
      RowPartial<T> row_partials[kRowThreads], total = RowPartial<T>::empty();
#pragma unroll
      for (int i = 0; i < kRowThreads; ++i) {
        row_partials[i] = thread_partials[i][share_row];
      }
      total.merge(row_partials);
      for (unsigned block = 0; block < kBlocks; ++block) {
        totals_arrived.send(block, &totals[row], total);
      }
    }
    totals_arrived.wait(0);
  }

 private:
  /// Merges one row's partials of every kRowThreads-th block from `block` on.
  __device__ static RowPartial<T> merge_strided(const RowPartial<T>* partials, int block,
                                                int blocks) {
    constexpr int kBatch = 16;  // loads in flight
    RowPartial<T> total = RowPartial<T>::empty();
    for (; block < blocks; block += kBatch * kRowThreads) {
      RowPartial<T> batch[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int from = block + i * kRowThreads;
        batch[i] = RowPartial<T>::empty();
        if (from < blocks) {
          const float2 bits =
              __ldcg(reinterpret_cast<const float2*>(partials + int64_t{from} * kTileRows));
          batch[i] = {bits.x, bits.y};
        }
      }
      total.merge(batch);
    }
    return total;
  }
};

}  // namespace warpfuse::cuda
