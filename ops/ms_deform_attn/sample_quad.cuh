#pragma once

#include <limits>

#include "ms_deform_attn/sample_point.h"

namespace warpfuse::cuda {

/// Two neighbouring indices of one axis, [first, first + 1] in [0, size), and the weights of linear
/// interpolation: 1 - |distance from the index|, or 0. An index outside has no part in it, nor has
/// NaN.
template <typename C>
struct AxisPair {
  int first;
  C weight[2];

  __device__ AxisPair(C location, int size) {
    const C length = static_cast<C>(size), at = location * length - C(0.5);
    C index = min(max(floor(at), C(0)), static_cast<C>(max(size - 2, 0)));
    C distance = pixel_distance(location, length, index);
    if (distance < 0 && index > 0) {
      index -= 1;
      distance += 1;
    }
    first = static_cast<int>(index);
    weight[0] = size > 0 ? max(1 - abs(distance), C(0)) : C(0);
    weight[1] = size > 1 ? max(1 - abs(distance - 1), C(0)) : C(0);
  }
};

/// A sampling location as four pixels of the value that are read without a branch: first, first +
/// 1, first + pitch, first + pitch + 1. Pixels that are no corners have weight 0. Since 0 times
/// infinity is NaN, a sum that is not finite must be computed once more by SamplePoint, as must
/// that of a location whose weight is NaN here because the value does not have its four pixels.
template <typename C>
struct SampleQuad {
  int first = 0, pitch = 0;
  C weight[4] = {};  // of the corners, in SamplePoint's order, times the point's

  SampleQuad() = default;
  __device__ SampleQuad(const SampledLevel& level, int pixels, C location_x, C location_y,
                        C point_weight) {
    const AxisPair<C> x(location_x, level.width), y(location_y, level.height);
    unsigned pixel = static_cast<unsigned>(level.start) +
                     static_cast<unsigned>(y.first) * static_cast<unsigned>(level.width) + x.first;
    C left = x.weight[0], right = x.weight[1];
    if (level.width == 1 && level.start > 0) {  // the second of two pixels: the last has no next
      --pixel;
      right = left;
      left = 0;
    }
    const C top = point_weight * y.weight[0], bottom = point_weight * y.weight[1];
    weight[0] = top * left, weight[1] = top * right;
    weight[2] = bottom * left, weight[3] = bottom * right;
    first = static_cast<int>(pixel);
    pitch = level.height > 1 ? level.width : 0;
    if (pixel >= static_cast<unsigned>(max(pixels - 1 - pitch, 0))) {
      first = pitch = 0;
      weight[0] = std::numeric_limits<C>::quiet_NaN();
    }
  }
};

}  // namespace warpfuse::cuda
