#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

namespace warpfuse::host {

struct Gpu {
  int64_t index;
  std::string name;
  std::string compute_capability;
  int64_t memory_bytes;
  int64_t multiprocessors;
  bool has_kernel;  // the plugin holds code that this GPU can run
};

// As the loaded plugin sees them; none without a plugin or when it was built without CUDA.
std::vector<Gpu> list_gpus();

// "auto" (the first GPU that the plugin has code for, else the CPU), "cpu", "cuda" or
// "cuda:<index>". Call it after load_plugin. Throws Error(usage) for another word, Error(device)
// when there is no such GPU.
c10::Device choose_device(const std::string& request);

// What the CPU kernels of libtorch use here, such as "AVX512".
std::string cpu_capability();

}  // namespace warpfuse::host
