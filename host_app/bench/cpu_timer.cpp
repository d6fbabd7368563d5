// Times on the CPU: wall clock with pages that stay mapped, and with malloc's defaults.

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/ops/empty.h>
#include <malloc.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "bench/timer.h"
#include "runtime/load/session.h"
#include "runtime/output.h"

namespace warpfuse::host::bench {
namespace {

constexpr int64_t kMaxSetsCpu = 16;
constexpr int64_t kMaxRotationBytes = 512 * kMebibyte;
constexpr int64_t kCopyGrain = 65536;
constexpr int64_t kMallocDefaultThreshold = int64_t{128} * 1024;
constexpr int kMallocDefaultMaps = 65536;
constexpr int64_t kMallocLargestThreshold = 32 * kMebibyte;

// Sets malloc's thresholds to glibc's values after blocks of `bytes` were freed: they grow with
// freed blocks up to 32 MiB, and larger blocks are mapped and unmapped each time. Earlier rows then
// make no difference.
void reset_malloc(int64_t bytes) {
  const int64_t threshold = std::clamp(bytes, kMallocDefaultThreshold, kMallocLargestThreshold);
  mallopt(M_MMAP_THRESHOLD, static_cast<int>(threshold));
  mallopt(M_TRIM_THRESHOLD, static_cast<int>(2 * threshold));
  malloc_trim(0);
}

// Keeps the pages of freed tensors mapped during its lifetime: all memory is the heap's, which does
// not shrink.
class WarmPages {
 public:
  WarmPages() {
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  }
  ~WarmPages() {
    mallopt(M_MMAP_MAX, kMallocDefaultMaps);
    reset_malloc(0);
  }
  WarmPages(const WarmPages&) = delete;
  WarmPages& operator=(const WarmPages&) = delete;
};

int64_t last_level_cache_bytes() { return std::max<int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE), 0); }

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

void parallel_copy(const at::Tensor& to, const at::Tensor& from) {
  auto* target = static_cast<char*>(to.mutable_data_ptr());
  const auto* source = static_cast<const char*>(from.const_data_ptr());
  at::parallel_for(0, static_cast<int64_t>(to.nbytes()), kCopyGrain,
                   [&](int64_t begin, int64_t end) {
                     std::memcpy(target + begin, source + begin, static_cast<size_t>(end - begin));
                   });
}

class CpuTimer : public Timer {
 public:
  explicit CpuTimer(Effort effort) : effort_(effort), cache_bytes_(last_level_cache_bytes()) {}

  Json method() const override {
    return {
        {"wall", fmt::format("median of {} samples of at least {} us by the wall clock, works "
                             "in turn, calls {}",
                             effort_.rounds, effort_.sample_us, inputs_in_words())},
        {"p50_us", "freed memory is kept for the next tensor, as with malloc's thresholds raised"},
        {"default_malloc_p50_us", "malloc with its default thresholds"},
        {"copy", "memcpy by all threads between tensors that are there already"}};
  }

  int64_t sets_for(int64_t bytes) const override {
    const int64_t wanted = std::min(2 * cache_bytes_, kMaxRotationBytes) / bytes;
    return effort_.warm ? 1 : std::clamp<int64_t>(wanted, 2, kMaxSetsCpu);
  }

  std::vector<Timing> time(const std::vector<Work>& works) override;
  std::vector<Work> copies(int64_t bytes) override;
  LargeCopy large_copy() override;
  std::optional<double> empty_kernel_us() override { return std::nullopt; }
  void release_memory() override { malloc_trim(0); }
  std::optional<int64_t> peak_bytes(const std::function<void()>& action) override {
    action();
    return std::nullopt;
  }

 private:
  std::string inputs_in_words() const {
    return effort_.warm ? "on the same inputs"
                        : fmt::format("rotate over inputs of up to {} MiB in all",
                                      kMaxRotationBytes / kMebibyte);
  }

  Effort effort_;
  int64_t cache_bytes_;
  int64_t next_ = 0;
};

std::vector<Timing> CpuTimer::time(const std::vector<Work>& works) {
  std::vector<Timing> timings(works.size());
  std::vector<TimedCall> all(works.size());
  std::vector<TimedCall*> order, allocating;
  int64_t first_output_bytes = 0;
  std::optional<WarmPages> warm(std::in_place);
  for (size_t i = 0; i < works.size(); ++i) {
    // All works take the next inputs in turn: none finds those of the work before it in a cache.
    all[i].call = [this, &work = works[i]] { work.call(next_++ % work.sets); };
    try {
      const at::Tensor output = works[i].call(0);
      all[i].set_sample_length(effort_.sample_us, all[i].sample(nullptr));
      order.push_back(&all[i]);
      if (output.defined() && output.nbytes() > 0) {
        if (allocating.empty()) {
          first_output_bytes = static_cast<int64_t>(output.nbytes());
        }
        allocating.push_back(&all[i]);
      }
    } catch (const c10::Error&) {
      timings[i].failure = failure_text();
    }
  }
  const auto timing_of = [&](const TimedCall* timed) -> Timing& {
    return timings[static_cast<size_t>(timed - all.data())];
  };
  sample_in_turn(order, effort_.rounds, kMinRounds, nullptr);
  for (TimedCall* timed : order) {
    timing_of(timed).call = percentiles_of(std::exchange(timed->us, {}));
  }
  warm.reset();
  if (allocating.empty()) {
    return timings;
  }
  reset_malloc(first_output_bytes);
  std::ranges::for_each(allocating, [](const TimedCall* timed) { timed->sample(nullptr); });
  sample_in_turn(allocating, effort_.short_rounds, kMinRounds, nullptr);
  for (const TimedCall* timed : allocating) {
    timing_of(timed).default_malloc_p50 = percentile(timed->us, 0.5);
  }
  return timings;
}

std::vector<Work> CpuTimer::copies(int64_t bytes) {
  const int64_t half = std::max<int64_t>(bytes / 2, 1);
  const int64_t sets = sets_for(half);
  const at::Tensor to = at::empty({half}, at::kByte).fill_(0);
  const at::Tensor from = at::empty({sets, half}, at::kByte).fill_(1);
  return {{[to, from](int64_t i) {
             parallel_copy(to, from.select(0, i));
             return at::Tensor();
           },
           sets}};
}

Timer::LargeCopy CpuTimer::large_copy() {
  const int64_t half = effort_.large_copy_bytes;
  const at::Tensor to = at::empty({half}, at::kByte).fill_(0);
  const at::Tensor from = at::empty({half}, at::kByte).fill_(1);
  const double us = median_us(1, effort_.short_rounds,
                              [&] { return timed_us(nullptr, [&] { parallel_copy(to, from); }); });
  return {2 * half, us};
}

}  // namespace

Json describe_cpu() {
  return {{"type", "cpu"},
          {"name", processor_name()},
          {"threads", at::get_num_threads()},
          {"capability", at::get_cpu_capability()},
          {"cache_bytes", last_level_cache_bytes()}};
}

std::unique_ptr<Timer> make_cpu_timer(Effort effort) { return std::make_unique<CpuTimer>(effort); }

}  // namespace warpfuse::host::bench
