#pragma once

#include <cstdint>

#include "common/host_device.h"

namespace warpfuse {

/// A level of the value: height x width pixels from `start` on.
struct SampledLevel {
  int64_t height, width, start;

  WARPFUSE_HOST_DEVICE SampledLevel(const int64_t* spatial_shapes, const int64_t* level_start_index,
                                    int64_t level)
      : height(spatial_shapes[2 * level]),
        width(spatial_shapes[2 * level + 1]),
        start(level_start_index[level]) {}

  /// Sizes on a GPU are not checked before they are used; those beyond these hold no pixel.
  WARPFUSE_HOST_DEVICE bool is_sane(int64_t pixels) const {
    constexpr int64_t kMax = INT32_MAX;
    return height >= 0 && height <= kMax && width >= 0 && width <= kMax && start >= 0 &&
           start < pixels;
  }
};

/// A sampling location between four pixels, as grid_sample(bilinear, zeros, align_corners=False)
/// takes it: pixel (i, j) covers [i, i + 1) x [j, j + 1) of height x width, its value lies in its
/// middle. Corners are (y, x), (y, x + 1), (y + 1, x), (y + 1, x + 1). Nothing is read at those
/// outside the level, nor outside the value.
template <typename C>
struct SamplePoint {
  int pixel[4];  // of the value, -1 outside
  C x, y;        // right of and below the first corner, in [0, 1)

  /// NaN counts as outside.
  WARPFUSE_HOST_DEVICE SamplePoint(const SampledLevel& level, int64_t pixels, C location_x,
                                   C location_y)
      : pixel{-1, -1, -1, -1}, x(0), y(0) {
    const C width = static_cast<C>(level.width), height = static_cast<C>(level.height);
    const C at_x = location_x * width - C(0.5), at_y = location_y * height - C(0.5);
    if (!(at_x >= -1 && at_x < width && at_y >= -1 && at_y < height && level.is_sane(pixels))) {
      return;
    }
    // Truncation is the floor from 0 on.
    const auto left = static_cast<int64_t>(at_x + 1) - 1, top = static_cast<int64_t>(at_y + 1) - 1;
    x = at_x - static_cast<C>(left);
    y = at_y - static_cast<C>(top);
    for (int corner = 0; corner < 4; ++corner) {
      const int64_t column = left + corner % 2, row = top + corner / 2;
      const int64_t index = level.start + row * level.width + column;
      if (column >= 0 && column < level.width && row >= 0 && row < level.height && index < pixels) {
        pixel[corner] = static_cast<int>(index);
      }
    }
  }

  WARPFUSE_HOST_DEVICE bool is_outside() const {
    return pixel[0] < 0 && pixel[1] < 0 && pixel[2] < 0 && pixel[3] < 0;
  }

  /// Bilinear weight of a corner.
  WARPFUSE_HOST_DEVICE C weight(int corner) const {
    return (corner % 2 == 0 ? 1 - x : x) * (corner / 2 == 0 ? 1 - y : y);
  }

  /// Derivatives of the interpolated value with respect to x and y, from values at the corners.
  WARPFUSE_HOST_DEVICE C dx(const C (&corners)[4]) const {
    return (corners[1] - corners[0]) * (1 - y) + (corners[3] - corners[2]) * y;
  }
  WARPFUSE_HOST_DEVICE C dy(const C (&corners)[4]) const {
    return (corners[2] - corners[0]) * (1 - x) + (corners[3] - corners[1]) * x;
  }
};

}  // namespace warpfuse
