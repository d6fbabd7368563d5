#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace warpfuse::host::bench {

// The rate of a GPU's multiprocessors as the driver's library NVML reads it.
class GpuClock {
 public:
  virtual ~GpuClock() = default;
  // Over the highest rate; nothing where it cannot be read.
  virtual std::optional<double> share() = 0;
  // Share of the last moments, up to a second, in which any program's kernels ran.
  virtual std::optional<double> busy_share() { return std::nullopt; }
};

// Of the GPU at this place on the PCI bus. Null where there is no NVML, or it does not know the
// GPU.
std::unique_ptr<GpuClock> open_gpu_clock(const std::string& pci_bus_id);

// Below this share the clock is down: nvbench's default.
inline constexpr double kThrottledShare = 0.75;

// Samples without those that were taken while the clock was down. Where these are most of them, the
// work itself keeps the clock down, as a matmul does that reaches the limit of power: all are kept.
struct UnthrottledSamples {
  std::vector<double> kept;
  int discarded = 0;
  bool throttled = false;
};
// `shares`: the lowest of each sample's time; 1 where none was read.
UnthrottledSamples unthrottled(const std::vector<double>& samples,
                               const std::vector<double>& shares);

}  // namespace warpfuse::host::bench
