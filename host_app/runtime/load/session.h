#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/load/bundle.h"
#include "runtime/load/plugin.h"

namespace warpfuse::host {

struct Gpu {
  int64_t index;
  std::string name;
  std::string compute_capability;
  int64_t memory_bytes;
  int64_t multiprocessors;
  bool has_kernel;  // the plugin was built for such a GPU
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Gpu, index, name, compute_capability, memory_bytes,
                                   multiprocessors, has_kernel)

// As the loaded plugin sees them; none without a plugin or when it was built without CUDA.
std::vector<Gpu> list_gpus();

// Which of the plugin's tables of tuning is in use, in words; nothing from a plugin that does not
// say.
std::optional<std::string> tuning_source();

// Brings libtorch_cuda into the process if the request may need it: neither this program nor the
// plugin links it, since it takes about a second to load. Call it after load_plugin, and before
// anything asks libtorch about CUDA, which remembers its first answer.
void load_cuda_if_wanted(const std::string& request);

// "auto" (the first GPU that the plugin has code for, else the CPU), "cpu", "cuda" or
// "cuda:<index>". Throws Error(usage) for another word, Error(device) when there is no such GPU.
c10::Device choose_device(const std::string& request);

// The instruction set that libtorch's CPU kernels use here, such as "AVX512".
std::string cpu_capability();

// The plugin and the device of a command that runs operators or models.
struct Session {
  std::optional<Plugin> plugin;
  c10::Device device;

  // Throws Error(plugin) if no plugin is loaded.
  const Plugin& loaded_plugin() const;
};

// Loads the plugin, chooses the device (device.h) and checks that all operators that are needed are
// registered. The plugin is required when a bundle needs operators that no --op-library brings, or
// the command itself calls some (`operators`, "namespace::name"); otherwise it is loaded if it is
// found.
Session open_session(const PluginOptions& options, const std::string& device,
                     const std::vector<Bundle>& bundles,
                     const std::vector<std::string>& operators = {});

}  // namespace warpfuse::host
