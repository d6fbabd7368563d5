#include "runtime/load/weight_memory.h"

#include <malloc.h>
#include <sys/mman.h>

#include <cstdint>

namespace warpfuse::host {

void use_huge_pages(const at::Tensor& tensor) {
  constexpr int kCollapse = 25;  // MADV_COLLAPSE, which glibc 2.36 does not know
  constexpr uintptr_t kHugePage = uintptr_t{2} * 1024 * 1024;
  const auto begin = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  if (tensor.nbytes() < kHugePage) {
    return;
  }
  // One by one: a page that lies partly in no mapping, or that the kernel has no memory for, stays.
  for (uintptr_t page = begin / kHugePage * kHugePage; page < begin + tensor.nbytes();
       page += kHugePage) {
    madvise(reinterpret_cast<void*>(page), kHugePage, kCollapse);  // NOLINT(performance-no-int-to-ptr)
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
