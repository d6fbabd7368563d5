#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace warpfuse::host {

// Integers on a device. A GPU fetches them when it has done what was launched before; nobody waits,
// and libtorch keeps the pinned memory for so long.
inline at::Tensor to_device(const std::vector<int64_t>& values, c10::Device device) {
  const at::Tensor staged = at::empty({static_cast<int64_t>(values.size())},
                                      at::TensorOptions(at::kLong).pinned_memory(device.is_cuda()));
  std::ranges::copy(values, staged.mutable_data_ptr<int64_t>());
  return staged.to(device, /*non_blocking=*/true);
}

}  // namespace warpfuse::host
