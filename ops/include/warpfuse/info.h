#pragma once

#include <warpfuse/dispatch.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace warpfuse {

/// Build settings of the loaded library, as JSON: version, schema_version, libtorch, cuda (null
/// for a CPU build), architectures, cpu_capabilities, compiler.
inline std::string build_info() {
  return detail::find_operator<std::string()>("warpfuse::build_info").call();
}

/// The machine, as JSON: cpu_capability in use; gpus, with index, name, compute_capability,
/// memory_bytes, multiprocessors and has_kernel (whether the library was built for such a GPU);
/// tuning, which table decides how rows run, in words. Takes no GPU memory.
inline std::string device_info() {
  return detail::find_operator<std::string()>("warpfuse::device_info").call();
}

/// The count of one counter since the start or the last reset, such as "softmax.cuda" (an operator
/// on a backend) or "tier.warp" (a branch of the row engine). Throws c10::Error for an unknown
/// name.
inline int64_t call_count(std::string_view name) {
  return detail::find_operator<int64_t(c10::string_view)>("warpfuse::call_count").call(name);
}

/// All counters, as a JSON object of name and count.
inline std::string call_counts() {
  return detail::find_operator<std::string()>("warpfuse::call_counts").call();
}

/// Sets all counters to zero.
inline void reset_call_counts() {
  detail::find_operator<void()>("warpfuse::reset_call_counts").call();
}

}  // namespace warpfuse
