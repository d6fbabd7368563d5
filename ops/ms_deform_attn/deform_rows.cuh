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

struct DeformLanes {
  int log_group, log_splits;  // of powers of two, whose product is at most 32

  WARPFUSE_HOST_DEVICE int group() const { return 1 << log_group; }
  WARPFUSE_HOST_DEVICE int splits() const { return 1 << log_splits; }
  WARPFUSE_HOST_DEVICE int row_lanes() const { return 1 << (log_group + log_splits); }
  WARPFUSE_HOST_DEVICE int log_warp_rows() const { return 5 - log_group - log_splits; }
  WARPFUSE_HOST_DEVICE int warp_rows() const { return 1 << log_warp_rows(); }
  /// Warps for a batch and head.
  WARPFUSE_HOST_DEVICE unsigned head_warps(const MsDeformAttnSizes& sizes) const {
    return (static_cast<unsigned>(sizes.queries) + warp_rows() - 1) >> log_warp_rows();
  }

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  /// The lanes of this thread's row, and those of them that share its points.
  __device__ LaneGroup row() const { return LaneGroup(row_lanes()); }
  __device__ LaneGroup channels() const { return LaneGroup(group()); }
  /// The row's number in its warp, and the thread's share of the points.
  __device__ int slot() const { return lane() >> (log_group + log_splits); }
  __device__ int split() const { return row().rank() >> log_group; }
};

/// The rows of a warp: `warp_rows` consecutive queries of one batch and head, or fewer at the end.
struct DeformRows {
  int batch, head, query;

  /// Warps are numbered [batches, heads, groups of queries].
  __device__ DeformRows(const MsDeformAttnSizes& sizes, const DeformLanes& lanes) {
    // Threads may be more than 2^32, warps are not.
    const unsigned warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const unsigned head_warps = lanes.head_warps(sizes), heads = sizes.heads;
    const unsigned batch_head = warp / head_warps;
    query = static_cast<int>((warp - batch_head * head_warps) * lanes.warp_rows());
    batch = static_cast<int>(batch_head / heads);
    head = static_cast<int>(batch_head - batch * heads);
  }

  /// Whether there is a row `slot` of the warp; else its lanes help with shuffles alone.
  __device__ bool has(const MsDeformAttnSizes& sizes, int slot) const {
    return query + slot < sizes.queries && batch < sizes.batches;
  }
  __device__ int64_t index(const MsDeformAttnSizes& sizes, int slot) const {
    return (batch * sizes.queries + query + slot) * sizes.heads + head;
  }
};

/// data[index] of float32 or T, which is read once: pixels of the value stay in the L1 cache
/// longer.
template <typename T>
__device__ __forceinline__ Compute<T> load_as(const void* data, DType dtype, int64_t index) {
  return dtype == DType::float32 ? static_cast<const float*>(data)[index]
                                 : to_compute(static_cast<const T*>(data)[index]);
}
template <typename T>
struct alignas(2 * sizeof(T)) Pair {
  T x, y;
};

/// data[2 * index] and data[2 * index + 1], which lie at a multiple of their size. Pixels of the
/// value stay in the L1 cache longer where pairs that are read `once` leave it first.
template <typename T, bool once = false>
__device__ __forceinline__ void load_pair_as(const void* data, DType dtype, int64_t index,
                                             Compute<T>& x, Compute<T>& y) {
  if (dtype == DType::float32) {
    const float2* const from = static_cast<const float2*>(data) + index;
    const float2 pair = once ? __ldcs(from) : *from;
    x = pair.x, y = pair.y;
  } else {
    const Pair<T> pair = static_cast<const Pair<T>*>(data)[index];
    x = to_compute(pair.x), y = to_compute(pair.y);
  }
}

template <typename T>
__device__ __forceinline__ void store_as(void* data, DType dtype, int64_t index, Compute<T> value) {
  if (dtype == DType::float32) {
    static_cast<float*>(data)[index] = static_cast<float>(value);
  } else {
    static_cast<T*>(data)[index] = from_compute<T>(value);
  }
}
template <typename T>
__device__ __forceinline__ void store_pair_as(void* data, DType dtype, int64_t index, Compute<T> x,
                                              Compute<T> y) {
  if (dtype == DType::float32) {
    static_cast<Pair<float>*>(data)[index] = {static_cast<float>(x), static_cast<float>(y)};
  } else {
    static_cast<Pair<T>*>(data)[index] = {from_compute<T>(x), from_compute<T>(y)};
  }
}

__device__ __forceinline__ SampledLevel sampled_level(const MsDeformAttnInputs& in, int point) {
  return {in.spatial_shapes, in.level_start_index,
          static_cast<unsigned>(point) / static_cast<unsigned>(in.sizes.points), in.sizes.pixels};
}

template <typename T>
__device__ __forceinline__ SamplePoint<Compute<T>> sample_point(const MsDeformAttnInputs& in,
                                                                const SampledLevel& level,
                                                                int64_t index) {
  Compute<T> x, y;
  load_pair_as<T>(in.sampling_locations, in.location_dtype, index, x, y);
  return {level, in.sizes.pixels, x, y};
}

/// base + pixel * pixel_bytes by one instruction: the compiler takes three, since it moves the
/// sign extension of pixel_bytes out of the loop.
template <typename T>
__device__ __forceinline__ T* pixel_address(T* base, int pixel, int pixel_bytes) {
  uint64_t address;
  asm("mad.wide.s32 %0, %1, %2, %3;"
      : "=l"(address)
      : "r"(pixel), "r"(pixel_bytes), "l"(reinterpret_cast<uint64_t>(base)));
  return reinterpret_cast<T*>(address);
}

/// Hides from the compiler how an address was computed, which it would compute again in a loop.
template <typename T>
__device__ __forceinline__ void stay_in_registers(T*& base, int& pixel_bytes) {
  asm volatile("" : "+l"(base), "+r"(pixel_bytes));
}

/// kVector neighbouring channels of a pixel: one element, 8 or 16 bytes. Zeros without one (-1).
template <typename T, int kVector>
struct Channels {
  uint4 bits = {};

  __device__ void load(const T* from) { bits = __ldg(reinterpret_cast<const uint4*>(from)); }
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

  __device__ void load(const T* from) { bits = __ldg(reinterpret_cast<const uint2*>(from)); }
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

  __device__ void load(const T* from) { element = __ldg(from); }
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
  channels.load(from);
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

/// At least `least_lanes` for a row's channels. Splits rows where they are too few to fill the GPU
/// with `warps` per multiprocessor.
inline DeformLanes deform_lanes(const MsDeformAttnSizes& sizes, int vector, int64_t least_lanes,
                                int64_t warps) {
  const int64_t needed = std::max<int64_t>((sizes.channels + vector - 1) / vector, least_lanes);
  DeformLanes lanes{
      static_cast<int>(std::bit_width(static_cast<uint64_t>(std::min<int64_t>(needed, 32) - 1))),
      0};
  const int64_t wanted = warps * device_limits().rows.multiprocessors;
  while (lanes.row_lanes() < 32 && 2 * lanes.splits() <= sizes.row_points() &&
         sizes.rows() * lanes.row_lanes() / 32 < wanted) {
    ++lanes.log_splits;
  }
  return lanes;
}

/// Launches kernel(arguments, lanes), with a warp per group of rows and blocks of `threads`.
template <typename Arguments>
cudaError_t launch_deform(void (*kernel)(Arguments, DeformLanes), const Arguments& arguments,
                          const DeformLanes& lanes, int threads, cudaStream_t stream) {
  const MsDeformAttnSizes& sizes = arguments.inputs.sizes;
  const int64_t warps = sizes.batches * sizes.heads * lanes.head_warps(sizes);
  if (warps > INT32_MAX) {
    return cudaErrorInvalidConfiguration;
  }
  const int64_t blocks = (32 * warps + threads - 1) / threads;
  return launch_kernel(kernel, {Tier::elements, 0, blocks, threads}, stream, arguments, lanes);
}

}  // namespace warpfuse::cuda
