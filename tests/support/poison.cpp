#include "poison.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "catch.h"

namespace {

constexpr size_t kZone = 512;  // bytes before and after; a multiple of ATen's alignment of 64
constexpr uint8_t kZonePattern = 0xa5;

std::atomic<int64_t> damaged_zones{0};

struct Block {
  at::DataPtr memory;  // zone, the caller's bytes, zone
  size_t bytes;
};

void check_and_free(void* context) {
  const auto* block = static_cast<Block*>(context);
  const auto* first = static_cast<const uint8_t*>(block->memory.get());
  const auto intact = [](const uint8_t* zone) {
    return std::all_of(zone, zone + kZone, [](uint8_t byte) { return byte == kZonePattern; });
  };
  damaged_zones += !intact(first) + !intact(first + kZone + block->bytes);
  delete block;
}

class GuardingAllocator final : public c10::Allocator {
 public:
  explicit GuardingAllocator(c10::Allocator* base) : base_(base) {}

  at::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) {
      return base_->allocate(0);
    }
    auto* block = new Block{base_->allocate(bytes + 2 * kZone), bytes};
    auto* first = static_cast<uint8_t*>(block->memory.get());
    std::memset(first, kZonePattern, kZone);
    std::memset(first + kZone, fill, bytes);
    std::memset(first + kZone + bytes, kZonePattern, kZone);
    return {first + kZone, block, &check_and_free, at::kCPU};
  }

  void copy_data(void* destination, const void* source, size_t bytes) const override {
    default_copy_data(destination, source, bytes);
  }

  uint8_t fill = 0xff;

 private:
  c10::Allocator* base_;
};

c10::Allocator* base_allocator() {
  static c10::Allocator* const base = c10::GetCPUAllocator();
  return base;
}

GuardingAllocator& guarding_allocator() {
  static GuardingAllocator instance(base_allocator());
  return instance;
}

}  // namespace

Poison::Poison(uint8_t fill)
    : deterministic_(at::globalContext().deterministicAlgorithms()),
      warn_only_(at::globalContext().deterministicAlgorithmsWarnOnly()),
      fill_uninitialized_(at::globalContext().deterministicFillUninitializedMemory()) {
  guarding_allocator().fill = fill;
  c10::SetCPUAllocator(&guarding_allocator());
  // The mode would fill CPU tensors too and so hide `fill`; only the GPU needs it.
  if (at::hasCUDA()) {
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
    at::globalContext().setDeterministicFillUninitializedMemory(true);
  }
}

Poison::~Poison() {
  c10::SetCPUAllocator(base_allocator());
  at::globalContext().setDeterministicAlgorithms(deterministic_, warn_only_);
  at::globalContext().setDeterministicFillUninitializedMemory(fill_uninitialized_);
  if (const int64_t damaged = take_damaged_guard_zones(); damaged > 0) {
    FAIL_CHECK("memory beside tensors was written: guard zones " << damaged);
  }
}

int64_t take_damaged_guard_zones() { return damaged_zones.exchange(0); }
