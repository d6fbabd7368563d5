#include "runtime/load/session.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/util/Exception.h>
#include <warpfuse/info.h>

#include <algorithm>

#include "runtime/decode/cuda_runtime.h"
#include "runtime/parse.h"

namespace warpfuse::host {
namespace {

int64_t gpu_count() { return at::hasCUDA() ? at::detail::getCUDAHooks().deviceCount() : 0; }

bool has_device_info() { return is_registered("warpfuse::device_info"); }

c10::Device cuda_device(int64_t index) {
  return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index)};
}

c10::Device first_usable_device() {
  const int64_t count = gpu_count();
  if (count == 0) {
    return c10::DeviceType::CPU;
  }
  if (!has_device_info()) {
    return cuda_device(0);
  }
  const nlohmann::json facts = device_facts();
  for (const nlohmann::json& gpu : facts["gpus"]) {
    if (gpu["has_kernel"]) {
      return cuda_device(gpu["index"]);
    }
  }
  return c10::DeviceType::CPU;
}

int64_t parse_index(const std::string& request) {
  if (request == "cuda") {
    return 0;
  }
  const std::optional<int64_t> index =
      request.starts_with("cuda:") ? parse_number(request.substr(5)) : std::nullopt;
  if (!index || *index < 0) {
    fail(ExitCode::usage, "--device: expected auto, cpu, cuda or cuda:<index>, got '{}'", request);
  }
  return *index;
}

// Brings libtorch_cuda into the process if the request may need it: neither this program nor the
// plugin links it, since it takes about a second to load. Call it after load_plugin, and before
// anything asks libtorch about CUDA, which remembers its first answer.
void load_cuda_if_wanted(const std::string& request) {
  // The plugin sees GPUs through the CUDA runtime alone; without one, "auto" need not wait.
  const bool wanted =
      request == "auto" ? !has_device_info() || !device_facts()["gpus"].empty() : request != "cpu";
  if (wanted) {
    try_open_library("libtorch_cuda.so");  // a libtorch without CUDA has none
  }
}

// "auto" (the first GPU that the plugin has code for, else the CPU), "cpu", "cuda" or
// "cuda:<index>". Throws Error(usage) for another word, Error(device) when there is no such GPU.
c10::Device choose_device(const std::string& request) {
  if (request == "cpu") {
    return c10::DeviceType::CPU;
  }
  if (request == "auto") {
    return first_usable_device();
  }
  const int64_t index = parse_index(request);
  const int64_t count = gpu_count();
  if (count == 0) {
    fail(ExitCode::device, "--device {}: {}", request,
         at::globalContext().hasCUDART() ? "no GPU, or no driver for it"
                                         : "this libtorch has no CUDA");
  }
  if (index >= count) {
    fail(ExitCode::device, "--device {}: there are {} GPUs, numbered from 0", request, count);
  }
  const nlohmann::json facts = device_facts();
  for (const nlohmann::json& gpu : facts["gpus"]) {
    if (gpu["index"] == index && !gpu["has_kernel"]) {
      fail(ExitCode::device,
           "--device {}: the plugin has no kernel for {} (compute capability {}); see 'warpfuse "
           "info'",
           request, gpu["name"].get<std::string>(), gpu["compute_capability"].get<std::string>());
    }
  }
  return cuda_device(index);
}

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

nlohmann::json device_facts() {
  return has_device_info() ? nlohmann::json::parse(device_info())
                           : nlohmann::json{{"gpus", nlohmann::json::array()}};
}

Session open_session(const PluginOptions& options, const std::string& device,
                     const std::vector<Bundle>& bundles,
                     const std::vector<std::string>& operators) {
  const bool required = !operators.empty() || std::ranges::any_of(bundles, needs_plugin);
  std::optional<Plugin> plugin = load_plugin(options, required);
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
  return {plugin.value_or(Plugin{}), chosen};
}

}  // namespace warpfuse::host
