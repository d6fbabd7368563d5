#include "bench/keeping_allocator.h"

#include <c10/core/CPUAllocator.h>

#include <cstring>
#include <memory>

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
  const std::lock_guard lock(mutex_);
  keeping_ = on;
  if (on) {
    return;
  }
  for (const auto& [bytes, blocks] : kept_) {
    for (Block* block : blocks) {
      delete block;
    }
  }
  kept_.clear();
}

c10::DataPtr KeepingAllocator::allocate(size_t bytes) {
  std::unique_lock lock(mutex_);
  if (!keeping_) {
    lock.unlock();
    return underlying_->allocate(bytes);
  }
  Block* block = nullptr;
  if (std::vector<Block*>& blocks = kept_[bytes]; !blocks.empty()) {
    block = blocks.back();
    blocks.pop_back();
  } else {
    block = new Block{underlying_->allocate(bytes), bytes};
  }
  return {block->memory.get(), block, give_back, block->memory.device()};
}

void KeepingAllocator::give_back(void* context) {
  std::unique_ptr<Block> block(static_cast<Block*>(context));
  KeepingAllocator& allocator = instance();
  const std::lock_guard lock(allocator.mutex_);
  if (allocator.keeping_) {
    allocator.kept_[block->bytes].push_back(block.get());
    block.release();
  }
}

void KeepingAllocator::copy_data(void* to, const void* from, std::size_t bytes) const {
  std::memcpy(to, from, bytes);
}

}  // namespace warpfuse::host::bench
