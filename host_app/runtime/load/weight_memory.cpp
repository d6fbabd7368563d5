#include "runtime/load/weight_memory.h"

#include <malloc.h>
#include <sys/mman.h>

#include <cstdint>

namespace warpfuse::host {

void use_huge_pages(const at::Tensor& tensor) {
  constexpr int kCollapse = 25;  // MADV_COLLAPSE, which glibc 2.36 does not know
  constexpr uintptr_t kHugePage = uintptr_t{2} * 1024 * 1024;
  auto* const data = static_cast<char*>(tensor.data_ptr());
  if (tensor.nbytes() < kHugePage) {
    return;
  }
  // One by one: a page that lies partly in no mapping, or that the kernel has no memory for, stays.
  for (char* page = data - reinterpret_cast<uintptr_t>(data) % kHugePage;
       page < data + tensor.nbytes(); page += kHugePage) {
    madvise(page, kHugePage, kCollapse);
  }
}

void settle_weights(const torch::jit::Module& module) {
  malloc_trim(0);
  for (const at::Tensor& parameter : module.parameters()) {
    if (parameter.is_cpu() && !parameter.is_mkldnn()) {
      use_huge_pages(parameter);
    }
  }
}

}  // namespace warpfuse::host
