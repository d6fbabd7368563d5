#pragma once

#include <cstdint>

namespace warpfuse {

/// The instruction sets that CPU kernels are compiled for, each from the same source.
enum class CpuCapability { baseline, avx2, avx512 };

/// The best one that both this machine and this build have; WARPFUSE_CPU_CAPABILITY=baseline or
/// avx2 lowers it. Read once.
CpuCapability cpu_capability();

const char* to_string(CpuCapability capability);

/// By how many bytes a software prefetch runs ahead of one stream of reads; 0 without one. A core
/// of Intel's reads 1.3 times as fast with it, one of AMD's slower (docs/log.md).
int64_t prefetch_distance();

/// Bytes of a core's second-level cache; 0 where the system does not say.
int64_t second_level_cache_bytes();

}  // namespace warpfuse

// A kernel source is compiled once for each instruction set with CPU_CAPABILITY defined, as at::vec
// wants it, and puts its functions into the namespace WARPFUSE_ISA.
#define WARPFUSE_CONCAT_(a, b) a##b
#define WARPFUSE_CONCAT(a, b) WARPFUSE_CONCAT_(a, b)
#define WARPFUSE_ISA WARPFUSE_CONCAT(isa_, CPU_CAPABILITY)

// Declares a function of every instruction set's namespace, and one of the same name that calls
// the one for this machine.
#ifdef WARPFUSE_CPU_X86
#define WARPFUSE_DECLARE_CPU_KERNEL(name, Arguments)                         \
  namespace isa_DEFAULT {                                                    \
  void name(const Arguments&, int64_t begin, int64_t end);                   \
  }                                                                          \
  namespace isa_AVX2 {                                                       \
  void name(const Arguments&, int64_t begin, int64_t end);                   \
  }                                                                          \
  namespace isa_AVX512 {                                                     \
  void name(const Arguments&, int64_t begin, int64_t end);                   \
  }                                                                          \
  inline void name(const Arguments& arguments, int64_t begin, int64_t end) { \
    switch (cpu_capability()) {                                              \
      case CpuCapability::avx512:                                            \
        return isa_AVX512::name(arguments, begin, end);                      \
      case CpuCapability::avx2:                                              \
        return isa_AVX2::name(arguments, begin, end);                        \
      default:                                                               \
        return isa_DEFAULT::name(arguments, begin, end);                     \
    }                                                                        \
  }
#else
#define WARPFUSE_DECLARE_CPU_KERNEL(name, Arguments)                         \
  namespace isa_DEFAULT {                                                    \
  void name(const Arguments&, int64_t begin, int64_t end);                   \
  }                                                                          \
  inline void name(const Arguments& arguments, int64_t begin, int64_t end) { \
    isa_DEFAULT::name(arguments, begin, end);                                \
  }
#endif
