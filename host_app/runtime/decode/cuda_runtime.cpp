#include "runtime/decode/cuda_runtime.h"

#include <dlfcn.h>

#include "runtime/load/plugin.h"

namespace warpfuse::host {
namespace {

constexpr const char* kModule = "libwarpfuse_host_cuda.so";
constexpr const char* kFactory = "warpfuse_host_make_cuda_runtime";

}  // namespace

bool load_cuda_operators() {
  const std::optional<std::filesystem::path> path = find_beside_program(kModule);
  if (path) {
    open_library(*path, "module");
  }
  return path.has_value();
}

std::unique_ptr<CudaRuntime> open_cuda_runtime(c10::Device device) {
  if (!device.is_cuda()) {
    return nullptr;
  }
  const std::optional<std::filesystem::path> path = find_beside_program(kModule);
  if (!path) {
    fail(ExitCode::device,
         "{}: this program was built without CUDA ({} is neither beside it nor in ../lib)",
         device.str(), kModule);
  }
  return open_cuda_runtime(device, *path);
}

std::unique_ptr<CudaRuntime> open_cuda_runtime(c10::Device device,
                                               const std::filesystem::path& path) {
  void* module = open_library(path, "module", ExitCode::device);
  using Factory = CudaRuntime*(int);
  auto* factory = reinterpret_cast<Factory*>(dlsym(module, kFactory));
  if (factory == nullptr) {
    fail(ExitCode::device, "{}: has no {}", path.string(), kFactory);
  }
  return std::unique_ptr<CudaRuntime>(factory(device.has_index() ? device.index() : 0));
}

}  // namespace warpfuse::host
