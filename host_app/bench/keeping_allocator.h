#pragma once

#include <c10/core/Allocator.h>

#include <mutex>
#include <unordered_map>
#include <vector>

namespace warpfuse::host::bench {

// libtorch's CPU allocator, which, while it is told to, keeps freed blocks for the next allocation
// of the same size. Their pages stay mapped, as they do when malloc's thresholds are raised
// (MALLOC_MMAP_THRESHOLD_, MALLOC_TRIM_THRESHOLD_), and malloc's own state is not touched.
class KeepingAllocator : public c10::Allocator {
 public:
  // One for the process, in use from the first call on.
  static KeepingAllocator& instance();

  // Stopping frees what is kept.
  void keep(bool on);

  c10::DataPtr allocate(size_t bytes) override;
  // Libraries that libtorch calls (oneDNN) take memory by address alone.
  c10::DeleterFnPtr raw_deleter() const override { return give_back; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override;

 private:
  struct Block {
    c10::DataPtr memory;
    size_t bytes;
  };

  KeepingAllocator();
  static void give_back(void* address);

  c10::Allocator* underlying_;
  std::mutex mutex_;
  bool keeping_ = false;
  std::unordered_map<size_t, std::vector<c10::DataPtr>> kept_;  // by size
  std::unordered_map<void*, Block> in_use_;                     // by address
};

}  // namespace warpfuse::host::bench
