#pragma once

#include "ms_deform_attn/deform_rows.cuh"
#include "ms_deform_attn/lab/level_maps.cuh"
#include "ms_deform_attn/lab/tile_algorithm.h"

namespace warpfuse::lab {

using cuda::Compute;

/// A unit of work: queries of one batch and head, some of their channels.
struct TileUnit {
  int number = 0, batch = 0, head = 0, box = 0, query = 0;

  TileUnit() = default;
  __device__ TileUnit(const TileArguments& arguments, int number) : number(number) {
    const MsDeformAttnSizes& sizes = arguments.inputs.sizes;
    const TileBox& tile = arguments.box;
    const unsigned groups =
        (static_cast<unsigned>(sizes.queries) + tile.rows() - 1) >> tile.log_rows();
    const unsigned plane = static_cast<unsigned>(number) / groups, batch_head = plane / tile.count;
    query = static_cast<int>((static_cast<unsigned>(number) - plane * groups) << tile.log_rows());
    box = static_cast<int>(plane - batch_head * tile.count);
    batch = static_cast<int>(batch_head / static_cast<unsigned>(sizes.heads));
    head = static_cast<int>(batch_head - batch * static_cast<unsigned>(sizes.heads));
  }

  /// That of another lane.
  __device__ TileUnit of_lane(int lane) const {
    constexpr unsigned kAll = 0xffffffffu;
    TileUnit other;
    other.number = __shfl_sync(kAll, number, lane);
    other.batch = __shfl_sync(kAll, batch, lane);
    other.head = __shfl_sync(kAll, head, lane);
    other.box = __shfl_sync(kAll, box, lane);
    other.query = __shfl_sync(kAll, query, lane);
    return other;
  }

  /// The first channel of all heads'.
  __device__ int channel(const TileArguments& arguments) const {
    return head * static_cast<int>(arguments.inputs.sizes.channels) +
           box * arguments.box.bytes / element_bytes(arguments.inputs.dtype);
  }
  __device__ bool has_row(const MsDeformAttnSizes& sizes, int slot) const {
    return query + slot < sizes.queries;
  }
  /// [batch, query, head] of a row.
  __device__ int64_t row(const MsDeformAttnSizes& sizes, int slot) const {
    return (batch * sizes.queries + query + slot) * sizes.heads + head;
  }
};

/// A point: the place between the tile's four pixels, the weight, and the level.
template <typename C>
struct alignas(4 * sizeof(C)) TilePoint {
  C x, y, weight;
  int level;
};

/// A point as it is given. Without one: outside, weight 0.
template <typename C>
struct TileLocation {
  C x = -1, y = -1, weight = 0;
};

/// Point `point` of row `slot` of a unit.
template <typename T>
__device__ __forceinline__ TileLocation<Compute<T>> load_location(const TileArguments& arguments,
                                                                  const TileUnit& unit, int slot,
                                                                  int point) {
  const MsDeformAttnInputs& in = arguments.inputs;
  const int row_points = static_cast<int>(in.sizes.row_points());
  TileLocation<Compute<T>> location;
  if (unit.number < arguments.units && unit.has_row(in.sizes, slot) && point < row_points) {
    const int64_t index = unit.row(in.sizes, slot) * row_points + point;
    cuda::load_pair_as<T>(in.sampling_locations, in.location_dtype, index, location.x, location.y);
    location.weight = cuda::load_as<T>(in.attention_weights, in.weight_dtype, index);
  }
  return location;
}

/// The first pixel of the point's tile, and its place in it. A tile without a pixel of the level is
/// read as zeros.
template <typename C>
__device__ __forceinline__ void locate(const TileLocation<C>& location, int point,
                                       const TileArguments& arguments, const TileLevel* levels,
                                       TilePoint<C>& place, int2& corner) {
  constexpr int kOutside = -2;
  corner = {kOutside, kOutside};
  place = {0, 0, location.weight, 0};
  const MsDeformAttnSizes& sizes = arguments.inputs.sizes;
  if (point >= sizes.row_points()) {
    return;
  }
  place.level = point / static_cast<int>(sizes.points);
  const TileLevel& level = levels[place.level];
  const C width = static_cast<C>(level.width), height = static_cast<C>(level.height);
  const C x = location.x * width - C(0.5), y = location.y * height - C(0.5);
  if (level.width > 0 && x >= -1 && x < width && y >= -1 && y < height) {
    corner = {static_cast<int>(floor(x)), static_cast<int>(floor(y))};
    place.x = x - static_cast<C>(corner.x);
    place.y = y - static_cast<C>(corner.y);
  }
}

/// sum += the interpolated channels of a tile in shared memory, 16 bytes from `byte` on. Rows
/// (`slot`) read the four pixels in different orders, so that neighbouring rows do not find theirs
/// in the same banks.
template <typename T>
__device__ __forceinline__ void add_tile(Compute<T> (&sum)[cuda::kPack<T>], unsigned tile,
                                         const TilePoint<Compute<T>>& point, int slot, int byte,
                                         int box_bytes) {
  using C = Compute<T>;
  constexpr int kVector = cuda::kPack<T>;
  const bool swaps_x = slot & 1, swaps_y = slot & 2;
  const C x[2] = {swaps_x ? point.x : 1 - point.x, swaps_x ? 1 - point.x : point.x};
  const C y[2] = {swaps_y ? point.y : 1 - point.y, swaps_y ? 1 - point.y : point.y};
  C sampled[kVector] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int corner = i ^ (slot & 3);
    C values[kVector];
    cuda::unpack<T>(cuda::load_shared_16_bytes(tile + corner * box_bytes + byte), values);
    const C weight = x[i % 2] * y[i / 2];
#pragma unroll
    for (int c = 0; c < kVector; ++c) {
      sampled[c] += weight * values[c];
    }
  }
#pragma unroll
  for (int c = 0; c < kVector; ++c) {
    sum[c] += point.weight * sampled[c];
  }
}

/// Writes 16 bytes of row `slot` of a unit, if there are such.
template <typename T>
__device__ __forceinline__ void store_tile_row(const TileArguments& arguments, const TileUnit& unit,
                                               int slot, int byte,
                                               const Compute<T> (&sum)[cuda::kPack<T>]) {
  const MsDeformAttnSizes& sizes = arguments.inputs.sizes;
  const int at = unit.box * arguments.box.bytes + byte;
  const int row_bytes = static_cast<int>(sizes.channels * sizeof(T));
  if (unit.has_row(sizes, slot) && byte < arguments.box.bytes && at < row_bytes) {
    cuda::store_16_bytes(
        static_cast<char*>(arguments.output) + unit.row(sizes, slot) * row_bytes + at,
        cuda::pack_bits<T>(sum));
  }
}

}  // namespace warpfuse::lab
