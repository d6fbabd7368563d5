#include "common/cpu_capability.h"

#ifdef __linux__
#include <unistd.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace warpfuse {
namespace {

CpuCapability best_of_machine() {
#ifdef WARPFUSE_CPU_X86
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) {
    return CpuCapability::avx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("f16c")) {
    return CpuCapability::avx2;
  }
#endif
  return CpuCapability::baseline;
}

CpuCapability choose() {
  const CpuCapability best = best_of_machine();
  const char* wanted = std::getenv("WARPFUSE_CPU_CAPABILITY");
  if (wanted == nullptr) {
    return best;
  }
  for (const CpuCapability lower : {CpuCapability::baseline, CpuCapability::avx2}) {
    if (std::string_view(wanted) == to_string(lower) && lower < best) {
      return lower;
    }
  }
  return best;
}

}  // namespace

CpuCapability cpu_capability() {
  static const CpuCapability chosen = choose();
  return chosen;
}

int64_t prefetch_distance() {
#ifdef WARPFUSE_CPU_X86
  return __builtin_cpu_is("intel") ? 1024 : 0;
#else
  return 0;
#endif
}

int64_t second_level_cache_bytes() {
#ifdef _SC_LEVEL2_CACHE_SIZE
  static const int64_t bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return std::max<int64_t>(bytes, 0);
#else
  return 0;
#endif
}

const char* to_string(CpuCapability capability) {
  switch (capability) {
    case CpuCapability::avx512:
      return "avx512";
    case CpuCapability::avx2:
      return "avx2";
    default:
      return "baseline";
  }
}

}  // namespace warpfuse
