#include "bench/gpu_clock.h"

#include <dlfcn.h>

namespace warpfuse::host::bench {
namespace {

// NVML's interface as far as it is used: its header is not needed for a build.
constexpr const char* kLibrary = "libnvidia-ml.so.1";
constexpr int kSuccess = 0;
constexpr int kClockOfMultiprocessors = 1;  // NVML_CLOCK_SM
using Device = struct NvmlDevice*;
using Init = int();
using FindDevice = int(const char* pci_bus_id, Device* device);
using ReadClock = int(Device device, int clock, unsigned* megahertz);
struct Utilization {  // percent
  unsigned gpu, memory;
};
using ReadUtilization = int(Device device, Utilization* utilization);

class Nvml : public GpuClock {
 public:
  // False where it cannot read the clock.
  bool open(const std::string& pci_bus_id) {
    void* library =
        dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);  // stays open, as the driver's others do
    if (library == nullptr) {
      return false;
    }
    const auto init = reinterpret_cast<Init*>(dlsym(library, "nvmlInit_v2"));
    const auto find =
        reinterpret_cast<FindDevice*>(dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2"));
    const auto maximum = reinterpret_cast<ReadClock*>(dlsym(library, "nvmlDeviceGetMaxClockInfo"));
    current_ = reinterpret_cast<ReadClock*>(dlsym(library, "nvmlDeviceGetClockInfo"));
    utilization_ =
        reinterpret_cast<ReadUtilization*>(dlsym(library, "nvmlDeviceGetUtilizationRates"));
    return init != nullptr && find != nullptr && maximum != nullptr && current_ != nullptr &&
           init() == kSuccess && find(pci_bus_id.c_str(), &device_) == kSuccess &&
           maximum(device_, kClockOfMultiprocessors, &max_megahertz_) == kSuccess &&
           max_megahertz_ > 0 && share().has_value();
  }

  std::optional<double> share() override {
    unsigned megahertz = 0;
    if (current_(device_, kClockOfMultiprocessors, &megahertz) != kSuccess) {
      return std::nullopt;
    }
    return static_cast<double>(megahertz) / max_megahertz_;
  }

  std::optional<double> busy_share() override {
    Utilization now{};
    if (utilization_ == nullptr || utilization_(device_, &now) != kSuccess) {
      return std::nullopt;
    }
    return now.gpu / 100.0;
  }

 private:
  ReadClock* current_ = nullptr;
  ReadUtilization* utilization_ = nullptr;
  Device device_ = nullptr;
  unsigned max_megahertz_ = 0;
};

}  // namespace

std::unique_ptr<GpuClock> open_gpu_clock(const std::string& pci_bus_id) {
  auto clock = std::make_unique<Nvml>();
  return clock->open(pci_bus_id) ? std::move(clock) : nullptr;
}

UnthrottledSamples unthrottled(const std::vector<double>& samples,
                               const std::vector<double>& shares) {
  UnthrottledSamples result;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (shares[i] >= kThrottledShare) {
      result.kept.push_back(samples[i]);
    }
  }
  if (2 * result.kept.size() < samples.size()) {
    return {.kept = samples, .discarded = 0, .throttled = true};
  }
  result.discarded = static_cast<int>(samples.size() - result.kept.size());
  return result;
}

}  // namespace warpfuse::host::bench
