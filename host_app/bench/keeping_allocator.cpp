#include "bench/keeping_allocator.h"

#include <c10/core/CPUAllocator.h>

#include <cstring>
#include <utility>

namespace warpfuse::host::bench {
namespace {

constexpr uint8_t kPriority = 1;  // above the allocator that was there

}  // namespace

KeepingAllocator::KeepingAllocator() : underlying_(c10::GetCPUAllocator()) {}

KeepingAllocator& KeepingAllocator::instance() {
  static auto* const allocator = [] {
    auto* made = new KeepingAllocator;  // outlives every tensor
    c10::SetCPUAllocator(made, kPriority);
    return made;
  }();
  return *allocator;
}

void KeepingAllocator::keep(bool on) {
  const std::scoped_lock lock(mutex_);
  keeping_ = on;
  if (!on) {
    kept_.clear();
  }
}

c10::DataPtr KeepingAllocator::allocate(size_t bytes) {
  std::unique_lock lock(mutex_);
  if (!keeping_) {
    lock.unlock();
    return underlying_->allocate(bytes);
  }
  Block block{{}, bytes};
  if (std::vector<c10::DataPtr>& free = kept_[bytes]; !free.empty()) {
    block.memory = std::move(free.back());
    free.pop_back();
  } else {
    block.memory = underlying_->allocate(bytes);
  }
  void* address = block.memory.get();
  const c10::Device device = block.memory.device();
  if (address != nullptr) {  // as it is where there are no bytes
    in_use_.insert_or_assign(address, std::move(block));
  }
  return {address, address, give_back, device};
}

void KeepingAllocator::give_back(void* address) {
  KeepingAllocator& allocator = instance();
  std::unique_lock lock(allocator.mutex_);
  auto found = allocator.in_use_.extract(address);
  if (found.empty()) {  // by address, from a time when nothing was kept
    lock.unlock();
    allocator.underlying_->raw_deallocate(address);
  } else if (allocator.keeping_) {
    Block& block = found.mapped();
    allocator.kept_[block.bytes].push_back(std::move(block.memory));
  }
}

void KeepingAllocator::copy_data(void* to, const void* from, std::size_t bytes) const {
  std::memcpy(to, from, bytes);
}

}  // namespace warpfuse::host::bench
