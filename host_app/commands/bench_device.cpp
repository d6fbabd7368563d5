#include "commands/bench_device.h"

#include "runtime/device.h"
#include "runtime/errors.h"

namespace warpfuse::host {

BenchDevice open_bench_device(const Arguments& arguments) {
  const std::string request = arguments.text("device");
  Plugin plugin = require_plugin(arguments.plugin_options());
  load_cuda_if_wanted(request);
  check_libtorch(plugin);
  if (request.starts_with("cuda") && !has_cuda_runtime()) {
    fail(ExitCode::device, "--device {}: this program was built without CUDA", request);
  }
  const c10::Device device = translating_errors(ExitCode::device, "--device " + request,
                                                [&] { return choose_device(request); });
  if (device.is_cuda() && !plugin.cuda) {
    fail(ExitCode::device, "--device {}: the plugin {} was built without CUDA", request,
         plugin.path);
  }
  return {std::move(plugin), device, device.is_cuda() ? open_cuda_runtime(device) : nullptr};
}

}  // namespace warpfuse::host
