#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>
#include <vector>

#include "runtime/bundle.h"
#include "runtime/plugin.h"

namespace warpfuse::host {

// What a command that runs models needs first: the plugin, the settings of libtorch, the device.
struct Session {
  std::optional<Plugin> plugin;
  c10::Device device;
};

// The plugin is required when a bundle needs operators that no --op-library brings, or the command
// itself calls some (`operators`, "namespace::name"); otherwise it is loaded if it is found. Checks
// that all of these operators are registered.
Session open_session(const PluginOptions& options, const std::string& device,
                     const std::vector<Bundle>& bundles,
                     const std::vector<std::string>& operators = {});

}  // namespace warpfuse::host
