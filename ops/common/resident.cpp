#include "common/resident.h"

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#endif

namespace warpfuse {

bool is_resident([[maybe_unused]] const void* address) {
#ifdef __linux__
  static const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t offset = reinterpret_cast<uintptr_t>(address) % page_bytes;
  void* const page = static_cast<char*>(const_cast<void*>(address)) - offset;
  unsigned char residency = 0;
  return mincore(page, 1, &residency) != 0 || (residency & 1U) != 0;
#else
  return true;
#endif
}

}  // namespace warpfuse
