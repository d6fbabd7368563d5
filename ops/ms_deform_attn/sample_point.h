#pragma once

#include <cstdint>

#include "common/host_device.h"

namespace warpfuse {

/// A level of the value: height x width pixels from `start` on.
struct SampledLevel {
  int height = 0, width = 0, start = 0;

  SampledLevel() = default;
  /// Sizes on a GPU are not checked before they are used. A level that cannot lie in `pixels`,
  /// which are fewer than 2^31, has no pixel.
  WARPFUSE_HOST_DEVICE SampledLevel(const int64_t* spatial_shapes, const int64_t* level_start_index,
                                    int64_t level, int64_t pixels) {
    const int64_t rows = spatial_shapes[2 * level], columns = spatial_shapes[2 * level + 1];
    const int64_t first = level_start_index[level];
    if (rows > 0 && columns > 0 && rows <= INT32_MAX && columns <= INT32_MAX &&
        rows * columns <= INT32_MAX && first >= 0 && first < pixels) {
      height = static_cast<int>(rows);
      width = static_cast<int>(columns);
      start = static_cast<int>(first);
    }
  }
};

/// A sampling location between four pixels, as grid_sample(bilinear, zeros, align_corners=False)
/// takes it: pixel (i, j) covers [i, i + 1) x [j, j + 1) of height x width, its value lies in its
/// middle. Corners are (y, x), (y, x + 1), (y + 1, x), (y + 1, x + 1). Nothing is read at those
/// outside the level, nor outside the value.
template <typename C>
struct SamplePoint {
  int pixel[4] = {-1, -1, -1, -1};  // of the value, -1 outside
  C x = 0, y = 0;                   // right of and below the first corner, in [0, 1)

  /// NaN counts as outside.
  WARPFUSE_HOST_DEVICE SamplePoint(const SampledLevel& level, int64_t pixels, C location_x,
                                   C location_y) {
    const C width = static_cast<C>(level.width), height = static_cast<C>(level.height);
    const C at_x = location_x * width - C(0.5), at_y = location_y * height - C(0.5);
    if (!(at_x >= -1 && at_x < width && at_y >= -1 && at_y < height) || level.width == 0) {
      return;
    }
    // Truncation is the floor from 0 on.
    const int left = static_cast<int>(at_x + 1) - 1, top = static_cast<int>(at_y + 1) - 1;
    x = at_x - static_cast<C>(left);
    y = at_y - static_cast<C>(top);
    const unsigned first = static_cast<unsigned>(level.start) +
                           static_cast<unsigned>(top) * static_cast<unsigned>(level.width) +
                           static_cast<unsigned>(left);
    const bool columns[2] = {left >= 0, left + 1 < level.width};
    const bool rows[2] = {top >= 0, top + 1 < level.height};
    for (int corner = 0; corner < 4; ++corner) {
      const unsigned index = first + corner % 2 + (corner / 2 == 0 ? 0 : level.width);
      if (columns[corner % 2] && rows[corner / 2] && index < pixels) {
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
