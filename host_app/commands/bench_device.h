#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "commands/arguments.h"
#include "runtime/decode/cuda_runtime.h"
#include "runtime/load/plugin.h"

namespace warpfuse::host {

// The plugin, and the device that it is measured on.
struct BenchDevice {
  Plugin plugin;
  c10::Device device;
  std::unique_ptr<CudaRuntime> runtime;  // null on the CPU
};

// Loads the plugin and opens the device that the options name. with_table: see plugin_options().
BenchDevice open_bench_device(const Arguments& arguments, bool with_table = true);

}  // namespace warpfuse::host
