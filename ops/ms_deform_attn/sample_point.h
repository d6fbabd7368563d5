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

/// location * size - (index + 0.5), how far a location is from a pixel's middle along an axis,
/// rounded once: location * size - 0.5 has an error of 2^-17 in float32 from pixel 128 on. Where
/// that error makes the next index of its floor, the distance is negative.
template <typename C>
WARPFUSE_HOST_DEVICE C pixel_distance(C location, C size, C index) {
#ifdef __CUDA_ARCH__
  return fma(location, size, -(index + C(0.5)));
#else
  return static_cast<C>(double{location} * double{size} - (double{index} + 0.5));
#endif
}

/// A sampling location between four pixels, as grid_sample(bilinear, zeros, align_corners=False)
/// takes it: pixel (i, j) covers [i, i + 1) x [j, j + 1) of height x width, its value lies in its
/// middle. Corners are (y, x), (y, x + 1), (y + 1, x), (y + 1, x + 1). Nothing is read at those
/// outside the level, nor outside the value.
template <typename C>
struct SamplePoint {
  int pixel[4] = {-1, -1, -1, -1};  // of the value, -1 outside
  C x = 0, y = 0;                   // right of and below the first corner, in [0, 1)

  SamplePoint() = default;
  /// NaN counts as outside.
  WARPFUSE_HOST_DEVICE SamplePoint(const SampledLevel& level, int64_t pixels, C location_x,
                                   C location_y) {
    const C width = static_cast<C>(level.width), height = static_cast<C>(level.height);
    const C at_x = location_x * width - C(0.5), at_y = location_y * height - C(0.5);
    if (!(at_x >= -1 && at_x <= width && at_y >= -1 && at_y <= height) || level.width == 0) {
      return;
    }
    const int left = first_pixel(location_x, width, at_x, x),
              top = first_pixel(location_y, height, at_y, y);
    const unsigned first = static_cast<unsigned>(level.start) +
                           static_cast<unsigned>(top) * static_cast<unsigned>(level.width) +
                           static_cast<unsigned>(left);
    for (int corner = 0; corner < 4; ++corner) {
      const unsigned row = static_cast<unsigned>(top) + corner / 2,
                     column = static_cast<unsigned>(left) + corner % 2;
      const unsigned index = first + corner % 2 + (corner / 2 == 0 ? 0 : level.width);
      if (row < static_cast<unsigned>(level.height) &&
          column < static_cast<unsigned>(level.width) && index < pixels) {
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

 private:
  /// The index of the pixel before the location, about `at`, and the distance from it.
  WARPFUSE_HOST_DEVICE static int first_pixel(C location, C size, C at, C& distance) {
    int index = static_cast<int>(at + 1) - 1;  // truncation is the floor from 0 on
    distance = pixel_distance(location, size, static_cast<C>(index));
    if (distance < 0) {
      --index;
      distance += 1;
    }
    return index;
  }
};

}  // namespace warpfuse
