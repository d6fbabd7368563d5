#pragma once

#include "rowwise/cuda/group.cuh"
#include "skinny_linear/tile_product.cuh"

namespace warpfuse::cuda {

__host__ __device__ constexpr int64_t staged_stride(int64_t packs) {
  return packs / kRowGroup * kRowGroup + 12;
}

inline int64_t staged_bytes(const SkinnyLinearArguments& a) {
  const int64_t packs = a.columns * element_bytes(a.dtype) / 16;
  return (a.rows * staged_stride(packs) + (a.norm != Norm::none ? 2 * packs : 0)) * 16;
}

inline constexpr int kHeld = 8;  // packs per lane
inline constexpr int kMaxStagedPacks = 32 * kHeld;

/// The input's rows in shared memory, normalised there, and the norm's vectors behind them. Packs
/// of one step of eight rows lie in different banks. For its norm a row is held by a warp.
template <typename T>
class StagedRows {
 public:
  __device__ StagedRows(const SkinnyLinearArguments& a, uint4* memory)
      : a_(a),
        memory_(memory),
        packs_(static_cast<int>(a.columns) / kPack<T>),
        stride_(static_cast<int>(staged_stride(packs_))),
        vectors_(memory + a.rows * stride_) {}

  __device__ const uint4& at(int row, int pack) const { return memory_[row * stride_ + pack]; }

  /// Starts the copies of the norm's vectors, which the kernels ahead do not write.
  __device__ void copy_vectors() const {
    if (a_.norm == Norm::none) {
      return;
    }
    for (int pack = static_cast<int>(threadIdx.x); pack < packs_; pack += blockDim.x) {
      copy_16_bytes(shared_address(vectors_ + pack), pack_of(a_.norm_weight, pack));
      if (a_.norm_bias != nullptr) {
        copy_16_bytes(shared_address(vectors_ + packs_ + pack), pack_of(a_.norm_bias, pack));
      } else {
        vectors_[packs_ + pack] = {};
      }
    }
  }

  __device__ void copy_rows() const {
    for (int i = static_cast<int>(threadIdx.x); i < a_.rows * packs_; i += blockDim.x) {
      const int row = i / packs_, pack = i % packs_;
      copy_16_bytes(shared_address(memory_ + row * stride_ + pack),
                    pack_of(a_.input, row * packs_ + pack));
    }
  }

  /// Waits for the copies of all threads, and normalises: a warp per row.
  __device__ void normalise() const {
    commit_copies();
    wait_for_copies<0>();
    __syncthreads();
    if (a_.norm == Norm::none) {
      return;
    }
    const int warps = static_cast<int>(blockDim.x) / 32;
    for (int row = static_cast<int>(threadIdx.x) / 32; row < a_.rows; row += warps) {
      normalise_row(memory_ + row * stride_);
    }
    __syncthreads();
  }

 private:
  __device__ const T* pack_of(const void* vector, int pack) const {
    return static_cast<const T*>(vector) + int64_t{pack} * kPack<T>;
  }

  /// By one warp, which holds the row.
  __device__ void normalise_row(uint4* row) const {
    uint4 held[kHeld];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      held[i] = has(i) ? row[at(i)] : uint4();
    }
    const float inverse_columns = 1.0f / static_cast<float>(a_.columns);
    float mean = 0;
    if (a_.norm == Norm::layer) {
      mean = sum(held, [](float x) { return x; }) * inverse_columns;
    }
    const float squares = sum(held, [&](float x) { return (x - mean) * (x - mean); });
    const float inverse_deviation = rsqrtf(fmaf(squares, inverse_columns, a_.epsilon));
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (has(i)) {
        float values[kPack<T>], weights[kPack<T>], biases[kPack<T>];
        unpack<T>(held[i], values);
        unpack<T>(vectors_[at(i)], weights);
        unpack<T>(vectors_[packs_ + at(i)], biases);
#pragma unroll
        for (int e = 0; e < kPack<T>; ++e) {
          values[e] = fmaf((values[e] - mean) * inverse_deviation, weights[e], biases[e]);
        }
        row[at(i)] = pack_bits<T>(values);  // rounded, as a norm's result in memory is
      }
    }
  }

  /// Over a row. Packs are summed independently of one another.
  template <typename Term>
  __device__ float sum(const uint4 (&held)[kHeld], const Term& term) const {
    float total = 0;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (has(i)) {
        float values[kPack<T>], of_pack = 0;
        unpack<T>(held[i], values);
#pragma unroll
        for (const float value : values) {
          of_pack += term(value);
        }
        total += of_pack;
      }
    }
    return Warp().sum(total);
  }

  __device__ static int at(int i) { return static_cast<int>(threadIdx.x) % 32 + 32 * i; }
  __device__ bool has(int i) const { return at(i) < packs_; }

  const SkinnyLinearArguments& a_;
  uint4* memory_;
  int packs_, stride_;
  uint4* vectors_;
};

}  // namespace warpfuse::cuda
