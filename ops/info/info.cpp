// What the library was built from, what it runs on, and its counters.

#include "info/info.h"

#include "common/check.h"
#include "common/counters.h"
#include "common/cpu_capability.h"
#include "common/registration.h"
#include "info/build_info.h"

namespace warpfuse {
namespace {

std::string device_info() {
  return std::string("{\"cpu_capability\": \"") + to_string(cpu_capability()) +
         "\", \"gpus\": " + gpus_json() + "}";
}

int64_t call_count(c10::string_view name) {
  const int64_t count = Counter::read(std::string(name));
  WARPFUSE_CHECK(count >= 0, "call_count", "name", "one of " + Counter::names(), '"', name, '"');
  return count;
}

WARPFUSE_LIBRARY_IMPL(CompositeExplicitAutograd, m) {
  m.impl("build_info", [] { return std::string(kBuildInfo); });
  m.impl("device_info", device_info);
  m.impl("call_count", call_count);
  m.impl("call_counts", [] { return Counter::json(); });
  m.impl("reset_call_counts", [] { Counter::reset_all(); });
}

}  // namespace
}  // namespace warpfuse

// --- the same without libtorch, for programs that dlopen the library ---------------------------

#define WARPFUSE_EXPORT extern "C" __attribute__((visibility("default")))

WARPFUSE_EXPORT const char* warpfuse_build_info() { return warpfuse::kBuildInfo; }

WARPFUSE_EXPORT const char* warpfuse_load_error() { return warpfuse::load_error(); }

WARPFUSE_EXPORT int64_t warpfuse_call_count(const char* name) {
  return name == nullptr ? -1 : warpfuse::Counter::read(name);
}

WARPFUSE_EXPORT void warpfuse_reset_call_counts() { warpfuse::Counter::reset_all(); }
