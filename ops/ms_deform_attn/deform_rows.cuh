#pragma once

#include <algorithm>
#include <bit>

#include "ms_deform_attn/ms_deform_attn.h"
#include "ms_deform_attn/sample_point.h"
#include "rowwise/cuda/device_limits.h"
#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/cuda/kernel_launch.h"
#include "rowwise/cuda/pack.cuh"

namespace warpfuse::cuda {

// How rows (batch, query, head) are spread over lanes. A `group` of lanes holds a row's channels,
// kVector neighbouring ones per lane; `splits` groups share a row's points. A block has consecutive
// queries of one head, whose points are near each other in most models, so that they find each
// other's pixels in the L1 cache.

inline constexpr int kDeformThreads = 256;
inline constexpr unsigned kFullWarp = 0xffffffff;

struct DeformLanes {
  int group, splits;  // powers of two; their product is at most 32

  WARPFUSE_HOST_DEVICE int row_lanes() const { return group * splits; }
  WARPFUSE_HOST_DEVICE int block_rows() const { return kDeformThreads / row_lanes(); }
};

/// The row of a lane.
struct DeformRow {
  int64_t batch, query, head;
  bool exists;  // else the lane helps with shuffles alone

  /// Row of block `tile`: tiles are [batches, heads, tiles of queries].
  __device__ DeformRow(const MsDeformAttnSizes& sizes, const DeformLanes& lanes, int64_t tile) {
    const int64_t tiles = (sizes.queries + lanes.block_rows() - 1) / lanes.block_rows();
    query = tile % tiles * lanes.block_rows() + threadIdx.x / lanes.row_lanes();
    head = tile / tiles % sizes.heads;
    batch = tile / tiles / sizes.heads;
    exists = query < sizes.queries;
  }

  __device__ int64_t index(const MsDeformAttnSizes& sizes) const {
    return (batch * sizes.queries + query) * sizes.heads + head;
  }
  /// First element of the row's batch and head in the value.
  __device__ int64_t value_offset(const MsDeformAttnSizes& sizes) const {
    return (batch * sizes.pixels * sizes.heads + head) * sizes.channels;
  }
};

/// data[index] of a dtype that is known at run time.
template <typename C>
__device__ __forceinline__ C load_as(const void* data, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::float64:
      return static_cast<C>(static_cast<const double*>(data)[index]);
    case DType::float32:
      return static_cast<C>(static_cast<const float*>(data)[index]);
    case DType::float16:
      return static_cast<C>(to_compute(static_cast<const __half*>(data)[index]));
    default:
      return static_cast<C>(to_compute(static_cast<const __nv_bfloat16*>(data)[index]));
  }
}

template <typename C>
__device__ __forceinline__ void store_as(void* data, DType dtype, int64_t index, C value) {
  switch (dtype) {
    case DType::float64:
      static_cast<double*>(data)[index] = static_cast<double>(value);
      return;
    case DType::float32:
      static_cast<float*>(data)[index] = static_cast<float>(value);
      return;
    case DType::float16:
      static_cast<__half*>(data)[index] = from_compute<__half>(static_cast<float>(value));
      return;
    default:
      static_cast<__nv_bfloat16*>(data)[index] =
          from_compute<__nv_bfloat16>(static_cast<float>(value));
  }
}

/// The sum, or the larger, of the values of the `lanes` lanes of a group that starts at a multiple.
template <typename C>
__device__ __forceinline__ C sum_over(C value, int lanes) {
  for (int offset = lanes / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kFullWarp, value, offset);
  }
  return value;
}
template <typename C>
__device__ __forceinline__ C max_over(C value, int lanes) {
  for (int offset = lanes / 2; offset > 0; offset /= 2) {
    value = larger(value, __shfl_xor_sync(kFullWarp, value, offset));
  }
  return value;
}

/// Weights of a row's points: the given ones, or their softmax. All lanes of the warp build it.
template <typename C>
class RowWeights {
 public:
  __device__ RowWeights(const MsDeformAttnInputs& in, const DeformLanes& lanes, bool exists,
                        int64_t row)
      : in_(in), first_(row * in.sizes.row_points()) {
    if (!in.softmax) {
      return;
    }
    const int lane = static_cast<int>(threadIdx.x) % lanes.row_lanes();
    const int count = exists ? static_cast<int>(in.sizes.row_points()) : 0;
    C max = negative_infinity<C>(), sum = 0;
    for (int i = lane; i < count; i += lanes.row_lanes()) {
      max = larger(max, raw(i));
    }
    max_ = max_over(max, lanes.row_lanes());
    for (int i = lane; i < count; i += lanes.row_lanes()) {
      sum += exp(raw(i) - max_);
    }
    sum_ = sum_over(sum, lanes.row_lanes());
  }

  __device__ C operator[](int point) const {
    return in_.softmax ? exp(raw(point) - max_) / sum_ : raw(point);
  }

 private:
  __device__ C raw(int point) const {
    return load_as<C>(in_.attention_weights, in_.weight_dtype, first_ + point);
  }

  const MsDeformAttnInputs& in_;
  int64_t first_;
  C max_ = 0, sum_ = 1;
};

template <typename C>
__device__ __forceinline__ SamplePoint<C> sample_point(const MsDeformAttnInputs& in, int64_t row,
                                                       int point) {
  const SampledLevel level(in.spatial_shapes, in.level_start_index,
                           point / static_cast<int>(in.sizes.points));
  const int64_t at = 2 * (row * in.sizes.row_points() + point);
  return {level, in.sizes.pixels, load_as<C>(in.sampling_locations, in.location_dtype, at),
          load_as<C>(in.sampling_locations, in.location_dtype, at + 1)};
}

/// kVector neighbouring channels: one element or 16 bytes.
template <typename T, int kVector>
struct Channels {
  uint4 bits = {};

  __device__ void load_if(bool wanted, const T* from) { load_16_bytes_if(wanted, from, bits); }
  __device__ void values(Compute<T> (&values)[kVector]) const { unpack<T>(bits, values); }
};
template <typename T>
struct Channels<T, 1> {
  T element = from_compute<T>(0);

  __device__ void load_if(bool wanted, const T* from) {
    if (wanted) {
      element = *from;
    }
  }
  __device__ void values(Compute<T> (&values)[1]) const { values[0] = to_compute(element); }
};

template <typename T, int kVector>
__device__ __forceinline__ void load_channels(const T* from, Compute<T> (&values)[kVector]) {
  Channels<T, kVector> channels;
  channels.load_if(true, from);
  channels.values(values);
}

/// sum += the interpolated channels, all four loads in flight together. Corners outside are zeros.
template <typename T, int kVector>
__device__ __forceinline__ void add_sample(Compute<T> (&sum)[kVector], const T* value,
                                           int64_t pixel_elements, const int (&pixels)[4],
                                           const Compute<T> (&weights)[4]) {
  Channels<T, kVector> corners[4];
#pragma unroll
  for (int corner = 0; corner < 4; ++corner) {
    corners[corner].load_if(pixels[corner] >= 0, value + pixels[corner] * pixel_elements);
  }
#pragma unroll
  for (int corner = 0; corner < 4; ++corner) {
    Compute<T> values[kVector];
    corners[corner].values(values);
#pragma unroll
    for (int c = 0; c < kVector; ++c) {
      sum[c] += weights[corner] * values[c];
    }
  }
}

// --- launch -----------------------------------------------------------------------------------

/// Whether channels can be read 16 bytes at a time from all `pointers`, null or not.
inline bool deform_is_vectorised(const MsDeformAttnInputs& in,
                                 std::initializer_list<const void*> pointers) {
  return in.sizes.channels * element_bytes(in.dtype) % 16 == 0 &&
         std::ranges::all_of(pointers, [](const void* pointer) {
           return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
         });
}

/// Splits rows where they are too few to fill the GPU.
inline DeformLanes deform_lanes(const MsDeformAttnSizes& sizes, int vector) {
  constexpr int64_t kWarpsPerMultiprocessor = 16;
  const int64_t needed = (sizes.channels + vector - 1) / vector;
  DeformLanes lanes{static_cast<int>(std::bit_ceil(std::min<uint64_t>(needed, 32))), 1};
  const int64_t wanted = kWarpsPerMultiprocessor * device_limits().rows.multiprocessors;
  while (lanes.row_lanes() < 32 && 2 * lanes.splits <= sizes.row_points() &&
         sizes.rows() * lanes.row_lanes() / 32 < wanted) {
    lanes.splits *= 2;
  }
  return lanes;
}

inline LaunchShape deform_shape(const MsDeformAttnSizes& sizes, const DeformLanes& lanes) {
  constexpr int64_t kMaxBlocks = 1 << 30;  // a block takes more tiles where there are more
  const int64_t tiles = (sizes.queries + lanes.block_rows() - 1) / lanes.block_rows();
  return {Tier::elements, 0, std::min(sizes.batches * sizes.heads * tiles, kMaxBlocks),
          kDeformThreads};
}

inline __device__ int64_t deform_tiles(const MsDeformAttnSizes& sizes, const DeformLanes& lanes) {
  return sizes.batches * sizes.heads *
         ((sizes.queries + lanes.block_rows() - 1) / lanes.block_rows());
}

}  // namespace warpfuse::cuda
