#pragma once

#include "rowwise/tuning.h"

namespace warpfuse::cuda {

struct DeviceLimits {
  RowLimits rows;
  bool dependent_launch;  // kernels may start while the one before them finishes
};

/// What the current device and the kernels that this library has for it allow.
const DeviceLimits& device_limits();

}  // namespace warpfuse::cuda
