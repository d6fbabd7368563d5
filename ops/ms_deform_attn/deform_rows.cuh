#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <initializer_list>

#include "ms_deform_attn/ms_deform_attn.h"
#include "ms_deform_attn/sample_point.h"
#include "rowwise/cuda/device_limits.h"
#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/cuda/group.cuh"
#include "rowwise/cuda/kernel_launch.h"
#include "rowwise/cuda/pack.cuh"

namespace warpfuse::cuda {

// How rows (batch, query, head) are spread over lanes. A `group` of lanes holds a row's channels,
// kVector neighbouring ones per lane; `splits` groups share a row's points. A block has consecutive
// queries of one head, whose points are near each other in most models, so that they find each
// other's pixels in the L1 cache.

inline constexpr int kDeformThreads = 256;

struct DeformLanes {
  int log_group, log_splits;  // of powers of two, whose product is at most 32

  WARPFUSE_HOST_DEVICE int group() const { return 1 << log_group; }
  WARPFUSE_HOST_DEVICE int splits() const { return 1 << log_splits; }
  WARPFUSE_HOST_DEVICE int row_lanes() const { return 1 << (log_group + log_splits); }
  WARPFUSE_HOST_DEVICE int warp_rows() const { return 32 >> (log_group + log_splits); }
  WARPFUSE_HOST_DEVICE int block_rows() const { return kDeformThreads / 32 * warp_rows(); }

  /// The lanes of this thread's row, and those of them that share its points.
  __device__ LaneGroup row() const { return LaneGroup(row_lanes()); }
  __device__ LaneGroup channels() const { return LaneGroup(group()); }
  /// The row's number in its block and in its warp, and the thread's share of the points.
  __device__ int block_row() const {
    return static_cast<int>(threadIdx.x) >> (log_group + log_splits);
  }
  __device__ int warp_row() const { return block_row() & (warp_rows() - 1); }
  __device__ int split() const { return row().rank() >> log_group; }
};

/// The row of a lane.
struct DeformRow {
  int batch, query, head;
  bool exists;  // else the lane helps with shuffles alone

  /// Row of block `tile`: tiles are [batches, heads, tiles of queries].
  __device__ DeformRow(const MsDeformAttnSizes& sizes, const DeformLanes& lanes, unsigned tile) {
    const unsigned block_rows = lanes.block_rows(), heads = sizes.heads;
    const unsigned tiles = (static_cast<unsigned>(sizes.queries) + block_rows - 1) / block_rows;
    const unsigned batch_head = tile / tiles;
    query = static_cast<int>((tile - batch_head * tiles) * block_rows) + lanes.block_row();
    batch = static_cast<int>(batch_head / heads);
    head = static_cast<int>(batch_head - batch * heads);
    exists = query < sizes.queries;
  }

  __device__ int64_t index(const MsDeformAttnSizes& sizes) const {
    return (batch * sizes.queries + query) * sizes.heads + head;
  }
};

/// data[index] of float32 or T.
template <typename T>
__device__ __forceinline__ Compute<T> load_as(const void* data, DType dtype, int64_t index) {
  return dtype == DType::float32 ? static_cast<const float*>(data)[index]
                                 : to_compute(static_cast<const T*>(data)[index]);
}

template <typename T>
__device__ __forceinline__ void store_as(void* data, DType dtype, int64_t index, Compute<T> value) {
  if (dtype == DType::float32) {
    static_cast<float*>(data)[index] = static_cast<float>(value);
  } else {
    static_cast<T*>(data)[index] = from_compute<T>(value);
  }
}

/// Weights of a row's points: the given ones, or their softmax. All lanes of the warp build it.
template <typename T>
class RowWeights {
  using C = Compute<T>;

 public:
  __device__ RowWeights(const MsDeformAttnInputs& in, const DeformLanes& lanes, bool exists,
                        int64_t row)
      : in_(in), first_(row * in.sizes.row_points()) {
    if (!in.softmax) {
      return;
    }
    const LaneGroup group = lanes.row();
    const int count = exists ? static_cast<int>(in.sizes.row_points()) : 0;
    C max = negative_infinity<C>(), sum = 0;
    for (int i = group.rank(); i < count; i += group.size()) {
      max = larger(max, raw(i));
    }
    max_ = group.max(max);
    for (int i = group.rank(); i < count; i += group.size()) {
      sum += exp(raw(i) - max_);
    }
    scale_ = 1 / group.sum(sum);
  }

  __device__ C operator[](int point) const {
    return in_.softmax ? exp(raw(point) - max_) * scale_ : raw(point);
  }

 private:
  __device__ C raw(int point) const {
    return load_as<T>(in_.attention_weights, in_.weight_dtype, first_ + point);
  }

  const MsDeformAttnInputs& in_;
  int64_t first_;
  C max_ = 0, scale_ = 1;
};

__device__ __forceinline__ SampledLevel sampled_level(const MsDeformAttnInputs& in, int point) {
  return {in.spatial_shapes, in.level_start_index,
          static_cast<unsigned>(point) / static_cast<unsigned>(in.sizes.points), in.sizes.pixels};
}

template <typename T>
__device__ __forceinline__ SamplePoint<Compute<T>> sample_point(const MsDeformAttnInputs& in,
                                                                const SampledLevel& level,
                                                                int64_t index) {
  return {level, in.sizes.pixels, load_as<T>(in.sampling_locations, in.location_dtype, 2 * index),
          load_as<T>(in.sampling_locations, in.location_dtype, 2 * index + 1)};
}

/// base + pixel * pixel_bytes by one instruction: the compiler takes three, since it moves the
/// sign extension of pixel_bytes out of the loop.
template <typename T>
__device__ __forceinline__ const T* pixel_address(const T* base, int pixel, int pixel_bytes) {
  uint64_t address;
  asm("mad.wide.s32 %0, %1, %2, %3;"
      : "=l"(address)
      : "r"(pixel), "r"(pixel_bytes), "l"(reinterpret_cast<uint64_t>(base)));
  return reinterpret_cast<const T*>(address);
}

/// kVector neighbouring channels of a pixel: one element, 8 or 16 bytes. Zeros without one (-1).
template <typename T, int kVector>
struct Channels {
  uint4 bits = {};

  /// A predicate in place of a branch, so that the loads of all corners are in flight together.
  __device__ void load(const T* base, int pixel, int pixel_bytes) {
    asm volatile(
        "{\n"
        ".reg .pred inside;\n"
        "setp.ge.s32 inside, %5, 0;\n"
        "@inside ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n"
        "}"
        : "+r"(bits.x), "+r"(bits.y), "+r"(bits.z), "+r"(bits.w)
        : "l"(pixel_address(base, pixel, pixel_bytes)), "r"(pixel));
  }
  __device__ void values(Compute<T> (&values)[kVector]) const { unpack<T>(bits, values); }
};
template <typename T>
  requires(sizeof(T) == 2)
struct Channels<T, 4> {
  uint2 bits = {};

  __device__ void load(const T* base, int pixel, int pixel_bytes) {
    if (pixel >= 0) {
      bits = *reinterpret_cast<const uint2*>(pixel_address(base, pixel, pixel_bytes));
    }
  }
  __device__ void values(float (&values)[4]) const {
    unpack_word(bits.x, values, T());
    unpack_word(bits.y, values + 2, T());
  }
};
template <typename T>
struct Channels<T, 1> {
  T element = from_compute<T>(0);

  __device__ void load(const T* base, int pixel, int pixel_bytes) {
    if (pixel >= 0) {
      element = *pixel_address(base, pixel, pixel_bytes);
    }
  }
  __device__ void values(Compute<T> (&values)[1]) const { values[0] = to_compute(element); }
};

template <typename T, int kVector>
__device__ __forceinline__ void load_channels(const T* from, Compute<T> (&values)[kVector]) {
  Channels<T, kVector> channels;
  channels.load(from, 0, 0);
  channels.values(values);
}

/// sum += the interpolated channels, all four loads in flight together. Corners outside are zeros.
template <typename T, int kVector>
__device__ __forceinline__ void add_sample(Compute<T> (&sum)[kVector], const T* value,
                                           int pixel_bytes, const int (&pixels)[4],
                                           const Compute<T> (&weights)[4]) {
  Channels<T, kVector> corners[4];
#pragma unroll
  for (int corner = 0; corner < 4; ++corner) {
    corners[corner].load(value, pixels[corner], pixel_bytes);
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

/// Whether `vector` channels can be read at once from all `pointers`, null or not.
inline bool deform_is_vectorised(const MsDeformAttnInputs& in, int vector,
                                 std::initializer_list<const void*> pointers) {
  return in.sizes.channels % vector == 0 && std::ranges::all_of(pointers, [](const void* pointer) {
           return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
         });
}

/// Splits rows where they are too few to fill the GPU.
inline DeformLanes deform_lanes(const MsDeformAttnSizes& sizes, int vector) {
  constexpr int64_t kWarpsPerMultiprocessor = 16;
  const int64_t needed = (sizes.channels + vector - 1) / vector;
  DeformLanes lanes{
      static_cast<int>(std::bit_width(static_cast<uint64_t>(std::min<int64_t>(needed, 32) - 1))),
      0};
  const int64_t wanted = kWarpsPerMultiprocessor * device_limits().rows.multiprocessors;
  while (lanes.row_lanes() < 32 && 2 * lanes.splits() <= sizes.row_points() &&
         sizes.rows() * lanes.row_lanes() / 32 < wanted) {
    ++lanes.log_splits;
  }
  return lanes;
}

/// Launches kernel(arguments, lanes) with a block per tile.
template <typename Arguments>
cudaError_t launch_deform(void (*kernel)(Arguments, DeformLanes), const Arguments& arguments,
                          const DeformLanes& lanes, cudaStream_t stream) {
  const MsDeformAttnSizes& sizes = arguments.inputs.sizes;
  const int64_t tiles = (sizes.queries + lanes.block_rows() - 1) / lanes.block_rows();
  const int64_t blocks = sizes.batches * sizes.heads * tiles;
  if (blocks > INT32_MAX) {
    return cudaErrorInvalidConfiguration;
  }
  return launch_kernel(kernel, {Tier::elements, 0, blocks, kDeformThreads}, stream, arguments,
                       lanes);
}

}  // namespace warpfuse::cuda
