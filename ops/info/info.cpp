// How the library was built, the devices that it runs on, its counters, tuning table and launch
// log.

#include <stdexcept>
#include <string>

#include "common/check.h"
#include "common/counters.h"
#include "common/cpu_capability.h"
#include "common/registration.h"
#include "info/build_info.h"
#include "info/has_code.h"
#include "rowwise/launch_log.h"
#include "rowwise/tuning.h"

#ifdef WARPFUSE_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

namespace warpfuse {
namespace {

// The GPUs of this machine as a JSON array; [] in a build without CUDA.
std::string gpus_json() {
#ifdef WARPFUSE_WITH_CUDA
  // No cudaSetDevice(): it would make a context on each GPU and take its memory.
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();  // no driver or no GPU: not an error of ours
    return "[]";
  }
  std::string text = "[";
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp gpu{};
    cudaGetDeviceProperties(&gpu, i);
    text +=
        std::string(i > 0 ? ", " : "") + "{\"index\": " + std::to_string(i) + ", \"name\": \"" +
        gpu.name + "\", \"compute_capability\": \"" + std::to_string(gpu.major) + "." +
        std::to_string(gpu.minor) + "\", \"memory_bytes\": " + std::to_string(gpu.totalGlobalMem) +
        ", \"multiprocessors\": " + std::to_string(gpu.multiProcessorCount) + ", \"has_kernel\": " +
        (has_code_for(kArchitectures, gpu.major, gpu.minor) ? "true" : "false") + "}";
  }
  return text + "]";
#else
  return "[]";
#endif
}

// A JSON string; a path may hold anything.
std::string quoted(const std::string& text) {
  std::string json = "\"";
  for (const char letter : text) {
    const bool special = letter == '"' || letter == '\\';
    json += special ? "\\" : "";
    json += static_cast<unsigned char>(letter) < ' ' ? ' ' : letter;
  }
  return json + "\"";
}

std::string device_info() {
  return std::string("{\"cpu_capability\": \"") + to_string(cpu_capability()) +
         "\", \"gpus\": " + gpus_json() + ", \"tuning\": " + quoted(tuning_source()) + "}";
}

int64_t call_count(c10::string_view name) {
  const int64_t count = Counter::read(std::string(name));
  WARPFUSE_CHECK(count >= 0, "call_count", "name", "one of " + Counter::names(), '"', name, '"');
  return count;
}

void replace_tuning(c10::string_view text) {
  if (text.empty()) {
    reset_tuning();
    return;
  }
  try {
    set_tuning(parse_tuning(std::string(text)));
  } catch (const std::invalid_argument& error) {
    WARPFUSE_CHECK(false, "_set_tuning", "text", "a tuning table as warpfuse::tuning() gives it",
                   error.what());
  }
}

WARPFUSE_LIBRARY_IMPL(CompositeExplicitAutograd, m) {
  m.impl("build_info", [] { return std::string(kBuildInfo); });
  m.impl("device_info", device_info);
  m.impl("call_count", call_count);
  m.impl("call_counts", [] { return Counter::json(); });
  m.impl("reset_call_counts", [] { Counter::reset_all(); });
  m.impl("tuning", [] { return tuning().to_string(); });
  m.impl("_set_tuning", replace_tuning);
  m.impl("_record_launches", LaunchLog::record);
  m.impl("_launches", LaunchLog::json);
}

}  // namespace
}  // namespace warpfuse

// --- a C interface without libtorch, for programs that dlopen the library ----------------------

#define WARPFUSE_EXPORT extern "C" __attribute__((visibility("default")))

WARPFUSE_EXPORT const char* warpfuse_build_info() { return warpfuse::kBuildInfo; }

WARPFUSE_EXPORT const char* warpfuse_load_error() { return warpfuse::load_error(); }

WARPFUSE_EXPORT int64_t warpfuse_call_count(const char* name) {
  return name == nullptr ? -1 : warpfuse::Counter::read(name);
}

WARPFUSE_EXPORT void warpfuse_reset_call_counts() { warpfuse::Counter::reset_all(); }
