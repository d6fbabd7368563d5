#pragma once

#include "gpt2_step/step_values.cuh"
#include "gpt2_step/weight_stream.cuh"

namespace warpfuse::cuda {

/// Sums of each warp for a result.
struct alignas(16) SumsOfWarps {
  float of[kStepWarps];

  __device__ __forceinline__ float total() const {
    float sums[4] = {};
#pragma unroll
    for (int i = 0; i < kStepWarps; ++i) {
      sums[i % 4] += of[i];
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }
};

/// A softmax of some slots' scores over the head's values.
struct StepPartial {
  float max, sum;
  float values[kMaxStepHeadDim];
};

/// What the warps of a block share. Behind it lie the ring's stages, and the rows of an input.
struct StepShared {
  WeightRing ring;
  StepProduct products[kMaxStepProducts];
  // Of each result of a tile; rows are 4 elements apart, for the banks.
  struct alignas(16) RowSums {
    SumsOfWarps outputs[kTileOutputs];
    float padding[4];
  } sums[kSumsBuffers][kMaxStepRows];
  Mbarrier sums_full[kSumsBuffers], sums_empty[kSumsBuffers];
  StepPartial attended[kStepWarps];
  unsigned long long best[kMaxStepRows];
  int positions[kMaxStepRows];
};

/// A position in the buffers of sums: of a warp that fills them or one that empties them.
class SumsCursor {
 public:
  __device__ int buffer() const { return buffer_; }
  __device__ unsigned parity() const { return parity_; }
  __device__ void wait_empty(StepShared& shared) const {
    shared.sums_empty[buffer_].wait(parity_ ^ 1);
  }
  __device__ void advance() {
    buffer_ = buffer_ + 1 == kSumsBuffers ? 0 : buffer_ + 1;
    parity_ ^= buffer_ == 0 ? 1 : 0;
  }

 private:
  int buffer_ = 0;
  unsigned parity_ = 0;
};

/// A barrier of the warps that compute.
__device__ __forceinline__ void sync_step_warps() {
  asm volatile("bar.sync 1, %0;" ::"n"(kStepWarps * 32) : "memory");
}

__device__ __forceinline__ int step_warp() { return static_cast<int>(threadIdx.x) / 32; }
__device__ __forceinline__ int step_lane() { return static_cast<int>(threadIdx.x) % 32; }

/// From a row of an input in shared memory to the next: half of the banks further.
__host__ __device__ constexpr int step_row_bytes(int packs) { return (packs + 7) / 8 * 128 + 64; }

/// The input of a product [rows, packs] in shared memory.
template <typename T>
class StepInput {
 public:
  __device__ StepInput(const Gpt2StepArguments& a, unsigned memory) : a_(a), memory_(memory) {}

  /// Waits for the product's rows, and normalises them where it has a norm: by all warps.
  __device__ __forceinline__ void fill(const StepProduct& product) {
    sync_step_warps();  // the rows before have been read
    row_bytes_ = step_row_bytes(product.packs);
    if (product.norm_weight == nullptr) {
      copy(product);
    } else if (step_warp() < a_.rows) {
      normalise_row(product, step_warp());
    }
    sync_step_warps();
  }

  /// The shared address of a pack.
  __device__ unsigned at(int row, int pack) const { return memory_ + row * row_bytes_ + pack * 16; }

 private:
  static constexpr int kNormPacks = kMaxStepWidth / (32 * kPack<T>);  // of a row per lane

  /// A thread takes the same pack of each row.
  __device__ __forceinline__ void copy(const StepProduct& product) const {
    const auto* const rows = static_cast<const uint4*>(product.input);
    for (int pack = static_cast<int>(threadIdx.x); pack < product.packs; pack += kStepWarps * 32) {
      uint4 bits[kMaxStepRows];
      await<kMaxStepRows>(
          bits, [&](int row) { return row < a_.rows; },
          [&](int row) { return rows + row * product.packs + pack; });
#pragma unroll
      for (int row = 0; row < kMaxStepRows; ++row) {
        if (row < a_.rows) {
          store_shared_16_bytes(at(row, pack), bits[row]);
        }
      }
    }
  }

  /// A row of `width` elements, by a warp. Its moments are relative to the row's first element,
  /// which is within sqrt(width) deviations of the mean.
  __device__ __forceinline__ void normalise_row(const StepProduct& product, int row) const {
    const auto pack_of = [](int i) { return i * 32 + step_lane(); };
    const auto has = [&](int i) { return pack_of(i) < product.packs; };
    uint4 bits[kNormPacks];
    float weight[kNormPacks][kPack<T>], bias[kNormPacks][kPack<T>];
    // The norm's vectors arrive before the row.
#pragma unroll
    for (int i = 0; i < kNormPacks; ++i) {
      uint4 vectors[2] = {};
      load_16_bytes_if(has(i), static_cast<const uint4*>(product.norm_weight) + pack_of(i),
                       vectors[0]);
      load_16_bytes_if(has(i), static_cast<const uint4*>(product.norm_bias) + pack_of(i),
                       vectors[1]);
      unpack<T>(vectors[0], weight[i]);
      unpack<T>(vectors[1], bias[i]);
    }
    const auto* const input = static_cast<const uint4*>(product.input) + row * product.packs;
    await<kNormPacks>(bits, has, [&](int i) { return input + pack_of(i); });
    float x[kNormPacks][kPack<T>], sum = 0, squares = 0;
    unpack<T>(bits[0], x[0]);
    const float shift = __shfl_sync(~0u, x[0][0], 0);
#pragma unroll
    for (int i = 0; i < kNormPacks; ++i) {
      unpack<T>(bits[i], x[i]);
#pragma unroll
      for (float& value : x[i]) {
        value = has(i) ? value - shift : 0.0f;
        sum += value;
        squares = fmaf(value, value, squares);
      }
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
      sum += __shfl_xor_sync(~0u, sum, offset);
      squares += __shfl_xor_sync(~0u, squares, offset);
    }
    const float mean = sum * a_.inverse_width;
    const float variance = fmaf(-mean, mean, squares * a_.inverse_width);
    const float scale = rsqrtf((variance < 0 ? 0.0f : variance) + a_.epsilon);  // a NaN stays
#pragma unroll
    for (int i = 0; i < kNormPacks; ++i) {
#pragma unroll
      for (int j = 0; j < kPack<T>; ++j) {
        x[i][j] = fmaf((x[i][j] - mean) * scale, weight[i][j], bias[i][j]);
      }
      if (has(i)) {
        store_shared_16_bytes(at(row, pack_of(i)), pack_bits<T>(x[i]));
      }
    }
  }

  const Gpt2StepArguments& a_;
  unsigned memory_;
  int row_bytes_ = 0;
};

}  // namespace warpfuse::cuda
