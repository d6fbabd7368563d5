#include "runtime/load/session.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "runtime/decode/cuda_runtime.h"
#include "runtime/errors.h"
#include "runtime/load/device.h"

namespace warpfuse::host {
namespace {

class QuietWarnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

bool needs_plugin(const Bundle& bundle) {
  return std::ranges::any_of(
      bundle.operators, [](const std::string& name) { return name.starts_with("warpfuse::"); });
}

void check_bundle(const Bundle& bundle) {
  if (needs_plugin(bundle) && bundle.schema_version != WARPFUSE_SCHEMA_VERSION) {
    fail(ExitCode::model, "{}: exported for schema version {} of the plugin, this one has {}",
         bundle.folder.string(), bundle.schema_version, WARPFUSE_SCHEMA_VERSION);
  }
  require_operators(bundle.operators, bundle.folder.string());
}

}  // namespace

const Plugin& Session::loaded_plugin() const {
  if (!plugin) {
    fail(ExitCode::plugin, "no plugin is loaded");
  }
  return *plugin;
}

Session open_session(const PluginOptions& options, const std::string& device,
                     const std::vector<Bundle>& bundles,
                     const std::vector<std::string>& operators) {
  const bool required = !operators.empty() || std::ranges::any_of(bundles, needs_plugin);
  std::optional<Plugin> plugin = required ? require_plugin(options) : load_plugin(options);
  load_cuda_if_wanted(device);
  if (plugin) {
    check_libtorch(*plugin);
  }
  std::ranges::for_each(bundles, check_bundle);
  require_operators(operators, "the command");
  static QuietWarnings quiet;  // stderr carries this program's own lines
  c10::WarningUtils::set_warning_handler(&quiet);
  const c10::Device chosen = translating_errors(ExitCode::device, "--device " + device,
                                                [&] { return choose_device(device); });
  if (chosen.is_cuda() && required && plugin && !plugin->cuda) {
    fail(ExitCode::device, "--device {}: the plugin {} was built without CUDA", device,
         plugin->path);
  }
  if (chosen.is_cuda()) {
    load_cuda_operators();
  }
  return {std::move(plugin), chosen};
}

}  // namespace warpfuse::host
