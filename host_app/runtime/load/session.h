#pragma once

#include <c10/core/Device.h>

#include "runtime/load/bundle.h"
#include "runtime/load/plugin.h"

namespace warpfuse::host {

// What the loaded plugin says of GPUs and its tuning (warpfuse/info.h); no GPUs without a plugin
// that says so.
nlohmann::json device_facts();

// The plugin and the device of a command that runs operators or models.
struct Session {
  Plugin plugin;  // empty where none was found and no operators were asked for
  c10::Device device;
};

// Loads the plugin, chooses the device and checks that all operators that are needed are
// registered. The plugin is required when a bundle needs operators that no --op-library brings, or
// the command itself calls some (`operators`, "namespace::name"); otherwise it is loaded if it is
// found.
Session open_session(const PluginOptions& options, const std::string& device,
                     const std::vector<Bundle>& bundles,
                     const std::vector<std::string>& operators = {});

}  // namespace warpfuse::host
