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
  std::unique_ptr<Block> block;
  if (std::vector<std::unique_ptr<Block>>& blocks = kept_[bytes]; !blocks.empty()) {
    block = std::move(blocks.back());
    blocks.pop_back();
  } else {
    block = std::make_unique<Block>(underlying_->allocate(bytes), bytes);
  }
  void* memory = block->memory.get();
  const c10::Device device = block->memory.device();
  return {memory, block.release(), give_back, device};
}

void KeepingAllocator::give_back(void* context) {
  std::unique_ptr<Block> block(static_cast<Block*>(context));
  KeepingAllocator& allocator = instance();
  const std::scoped_lock lock(allocator.mutex_);
  if (allocator.keeping_) {
    allocator.kept_[block->bytes].push_back(std::move(block));
  }
}

void KeepingAllocator::copy_data(void* to, const void* from, std::size_t bytes) const {
  std::memcpy(to, from, bytes);
}

}  // namespace warpfuse::host::bench
