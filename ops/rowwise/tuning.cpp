#include "rowwise/tuning.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <utility>

#ifdef WARPFUSE_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

namespace warpfuse {
namespace {

#ifdef WARPFUSE_WITH_CUDA
// Makes no context. Nothing without a GPU.
std::optional<GpuModel> model_of(int device) {
  cudaDeviceProp gpu{};
  if (cudaGetDeviceProperties(&gpu, device) != cudaSuccess) {
    cudaGetLastError();
    return std::nullopt;
  }
  return GpuModel{gpu.name, 10 * gpu.major + gpu.minor, gpu.multiProcessorCount};
}

int current_device() {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) {
    cudaGetLastError();
  }
  return device;
}
#else
std::optional<GpuModel> model_of(int) { return std::nullopt; }
int current_device() { return 0; }
#endif

const ShippedTable& shipped_for_device(int device) {
  return shipped_for(model_of(device), shipped_tables());
}

// The same of the current device, found once.
const ShippedTable& shipped_here() {
  static std::array<std::atomic<const ShippedTable*>, 64> known{};
  const auto device = static_cast<size_t>(current_device());
  if (device >= known.size()) {
    return shipped_for_device(static_cast<int>(device));
  }
  const ShippedTable* table = known[device].load(std::memory_order_acquire);
  if (table == nullptr) {
    table = &shipped_for_device(static_cast<int>(device));
    known[device].store(table, std::memory_order_release);
  }
  return *table;
}

// Tables that have been in use; none is freed, since a call may still read it.
class Tables {
 public:
  const Tuning& current() const {
    const Tuning* set = set_.load(std::memory_order_acquire);
    return set != nullptr ? *set : shipped_here().tuning;
  }

  void set(Tuning tuning, std::string source) {
    const std::scoped_lock lock(mutex_);
    auto known = std::ranges::find_if(tables_, [&](const auto& table) { return *table == tuning; });
    if (known == tables_.end()) {
      known = tables_.insert(known, std::make_unique<const Tuning>(std::move(tuning)));
    }
    set_.store(known->get(), std::memory_order_release);
    source_ = std::move(source);
  }

  void reset(std::string refused = {}) {
    const std::scoped_lock lock(mutex_);
    set_.store(nullptr, std::memory_order_release);
    source_ = std::move(refused);
  }

  std::string source() {
    const std::scoped_lock lock(mutex_);
    if (set_.load(std::memory_order_relaxed) != nullptr) {
      return source_;
    }
    const std::string& shipped = shipped_here().gpu.name;
    const std::optional<GpuModel> gpu = model_of(current_device());
    return "shipped for " + shipped +
           (gpu && gpu->name != shipped ? ", the nearest to " + gpu->name : "") +
           (source_.empty() ? "" : "; refused: " + source_);
  }

  static Tables& instance() {
    static auto* tables = new Tables;  // outlives every static destructor
    return *tables;
  }

 private:
  Tables() {
    const char* const path = std::getenv("WARPFUSE_TUNING");
    if (path == nullptr || *path == '\0') {
      return;
    }
    const std::string file = std::string("file ") + path;
    try {
      set(read(path), file);
    } catch (const std::exception& error) {
      reset(file + ": " + error.what());
      std::fprintf(stderr, "warpfuse: warning: WARPFUSE_TUNING: %s; the shipped table is used\n",
                   source_.c_str());
    }
  }

  static Tuning read(const char* path) {
    std::ifstream file(path);
    std::ostringstream text;
    if (!file || !(text << file.rdbuf())) {
      throw std::runtime_error("cannot be read");
    }
    return parse_tuning(text.str());
  }

  std::mutex mutex_;  // of writers
  std::vector<std::unique_ptr<const Tuning>> tables_;
  std::atomic<const Tuning*> set_{nullptr};  // null: the shipped one of each GPU
  std::string source_;                       // of what is set; or what was refused
};

}  // namespace

const char* to_string(Tier tier) {
  constexpr std::array kNames = {"warp",   "chunk",  "span",  "block",    "cluster",
                                 "stream", "column", "naive", "elements", "tile"};  // as in Tier
  static_assert(kNames.size() == static_cast<size_t>(Tier::tile) + 1);
  return kNames[static_cast<size_t>(tier)];
}

std::span<const TuningEntry> Tuning::lines(Direction direction, int element_bytes) const {
  return std::ranges::equal_range(entries, std::pair(direction, element_bytes), {},
                                  &TuningEntry::sort_key);
}

const Tuning& tuning() { return Tables::instance().current(); }

void set_tuning(Tuning tuning) {
  Tables::instance().set(std::move(tuning), "set while the program runs");
}

void reset_tuning() { Tables::instance().reset(); }

std::string tuning_source() { return Tables::instance().source(); }

}  // namespace warpfuse
