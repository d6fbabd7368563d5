// Memory that stays mapped between tensors, while it is asked for.

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "bench/keeping_allocator.h"
#include "support/catch.h"

using warpfuse::host::bench::KeepingAllocator;

namespace {

constexpr int64_t kElements = int64_t{16} * 1024 * 1024;  // 64 MiB: malloc alone would unmap it

const void* address_of_new_tensor() { return at::empty({kElements}).const_data_ptr(); }

}  // namespace

TEST_CASE("freed memory serves the next tensor of its size while it is kept", "[bench]") {
  KeepingAllocator& allocator = KeepingAllocator::instance();
  allocator.keep(true);
  const void* first = nullptr;
  {
    const at::Tensor seven = at::full({kElements}, 7.0F);
    first = seven.const_data_ptr();
    CHECK(address_of_new_tensor() != first);  // in use
  }
  const at::Tensor again = at::empty({kElements});
  CHECK(again.const_data_ptr() == first);
  CHECK(again[kElements - 1].item<float>() == 7.0F);  // the pages were not given back
  CHECK(at::empty({kElements + 1}).const_data_ptr() != first);
  void* raw = allocator.raw_allocate(64);  // as libraries ask, which know no tensors
  allocator.keep(false);
  allocator.raw_deallocate(raw);
  allocator.raw_deallocate(allocator.raw_allocate(64));
  CHECK(again[0].item<float>() == 7.0F);  // what is in use stays
}
