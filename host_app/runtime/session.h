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

// The plugin is required when a bundle needs operators that no --op-library brings; otherwise it is
// loaded if it is found. Checks that all operators of all bundles are registered.
Session open_session(const PluginOptions& options, const std::string& device,
                     const std::vector<Bundle>& bundles);

}  // namespace warpfuse::host
