#pragma once

#include <cstring>

#include "common/dropout.h"
#include "linear_dropout_softmax/tile_product.cuh"
#include "rowwise/cuda/math.cuh"

namespace warpfuse::cuda {

/// Of a row, or of a part of it: the maximum, and the sum of exponentials relative to it in units
/// of kExponentialUnit.
template <typename T>
struct alignas(8) RowSum {
  float max, sum;

  /// Of no elements.
  __device__ static RowSum none() { return {-INFINITY, 0}; }

  /// What exponentials are relative to. Where all are those of minus infinity, any number will do.
  __device__ static float reference(float max) { return max == -INFINITY ? 0.0f : max; }

  /// Several of the same row into one.
  template <int kCount>
  __device__ void add(const RowSum (&parts)[kCount]) {
    float new_max = max;
#pragma unroll
    for (const RowSum& part : parts) {
      new_max = larger(new_max, part.max);
    }
    sum *= rescale_factor<T>(max - reference(new_max));
    max = new_max;
#pragma unroll
    for (const RowSum& part : parts) {
      sum += part.sum * rescale_factor<T>(part.max - reference(max));
    }
  }
};

/// Combines x of the lanes that have a row between them.
template <typename Combine>
__device__ __forceinline__ float over_lanes(int lanes, float x, const Combine& combine) {
  for (int step = 1; step < lanes; step *= 2) {
    x = combine(x, __shfl_xor_sync(0xffffffffu, x, step));
  }
  return x;
}

/// Which logits of a tile are kept, a bit each: element e of the output is bit e % 8 of a byte.
struct KeptTile {
  unsigned char bytes[kTileRows][kTileColumns / kDropoutBlock];

  /// By `threads` threads. The tile's first element of a row is the first of a Philox block.
  __device__ void draw(const Dropout& dropout, const Rng& rng, int64_t columns, int first_column,
                       int threads) {
    constexpr int kRowBytes = sizeof(bytes[0]);
    for (int i = static_cast<int>(threadIdx.x); i < kTileRows * kRowBytes; i += threads) {
      const int row = i / kRowBytes, byte = i % kRowBytes;
      const auto block = static_cast<uint64_t>(row * columns + first_column) / kDropoutBlock + byte;
      bytes[row][byte] = static_cast<unsigned char>(kept_of_block(dropout, rng, block));
    }
  }
  /// Those of a thread's columns of row(i), in their order.
  template <typename Product>
  __device__ uint32_t of_thread(int i) const {
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

/// A thread's logits of row(i) become exponentials relative to the row's maximum in the tile.
/// kept: a bit each. Returns the sum of the tile's row.
template <typename T, typename Product>
__device__ __forceinline__ RowSum<T> exponentials(Product& product, int i, uint32_t kept,
                                                  float scale, const float* bias, int columns) {
  RowSum<T> row = RowSum<T>::none();
#pragma unroll
  for (int j = 0; j < Product::kColumns; ++j) {
    const int column = Product::column(j);
    float& x = product.values[i][j];
    x = (x + bias[column]) * ((kept >> j & 1) != 0 ? scale : 0.0f);
    x = column < columns ? x : -INFINITY;
    row.max = larger(row.max, x);
  }
  row.max = over_lanes(Product::kRowLanes, row.max, [](float a, float b) { return larger(a, b); });
#pragma unroll
  for (float& x : product.values[i]) {
    x = exponential<T>(x - RowSum<T>::reference(row.max));
    row.sum += x;
  }
  row.sum = over_lanes(Product::kRowLanes, row.sum, [](float a, float b) { return a + b; });
  return row;
}

/// What all blocks of the grid noted of the rows, put together: each block of a cluster does so for
/// a part of the rows, and sends it to all. By kThreads threads.
template <typename T, int kBlocks, int kThreads>
struct RowTotals {
  static constexpr int kOwnRows = kTileRows / kBlocks, kSharers = kThreads / kOwnRows;

  RowSum<T> of_row[kTileRows];
  RowSum<T> parts[kSharers][kOwnRows];
  Barrier came;

  /// By one thread, before the blocks of the cluster meet.
  __device__ void prepare() {
    came.initialise(1);
    came.expect(sizeof(of_row));
  }

  /// noted: [blocks, kTileRows].
  template <typename Meet>
  __device__ void combine(const RowSum<T>* noted, int blocks, const Meet& meet) {
    const int thread = static_cast<int>(threadIdx.x), own = thread % kOwnRows;
    const int row = static_cast<int>(blockIdx.x) % kBlocks * kOwnRows + own;
    parts[thread / kOwnRows][own] = gather(noted + row, thread / kOwnRows, blocks);
    meet();
    if (thread < kOwnRows) {
      RowSum<T> of_sharers[kSharers], total = RowSum<T>::none();
#pragma unroll
      for (int i = 0; i < kSharers; ++i) {
        of_sharers[i] = parts[i][own];
      }
      total.add(of_sharers);
      uint64_t bits;
      memcpy(&bits, &total, sizeof(bits));
      for (unsigned block = 0; block < kBlocks; ++block) {
        came.send(block, &of_row[row], bits);
      }
    }
    came.wait(0);
  }

 private:
  /// Of one row, every kSharers-th block from `first` on.
  __device__ static RowSum<T> gather(const RowSum<T>* noted, int first, int blocks) {
    constexpr int kBatch = 16;  // that are under way at once
    RowSum<T> all = RowSum<T>::none();
    for (; first < blocks; first += kBatch * kSharers) {
      RowSum<T> batch[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int block = first + i * kSharers;
        batch[i] = RowSum<T>::none();
        if (block < blocks) {
          const float2 bits =
              __ldcg(reinterpret_cast<const float2*>(noted + int64_t{block} * kTileRows));
          batch[i] = {bits.x, bits.y};
        }
      }
      all.add(batch);
    }
    return all;
  }
};

}  // namespace warpfuse::cuda
