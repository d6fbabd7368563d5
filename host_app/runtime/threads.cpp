#include "runtime/threads.h"

#include <ATen/Parallel.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

namespace warpfuse::host {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kWindow{100};
constexpr double kManyPerSecond = 120;  // some tens on an idle machine, some hundreds on a busy one
constexpr int kMaxPatience = 600;       // windows, a minute

std::optional<LoadWatch> watch;

int64_t preemptions() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

// Quota and period of one cgroup, "max" for no quota: in one file (version 2), or in two.
std::optional<double> quota_of(const fs::path& group) {
  double quota = 0;
  double period = 0;
  if (std::ifstream(group / "cpu.max") >> quota >> period) {
    return quota / period;
  }
  if (std::ifstream(group / "cpu.cfs_quota_us") >> quota && quota > 0 &&
      std::ifstream(group / "cpu.cfs_period_us") >> period) {
    return quota / period;
  }
  return std::nullopt;
}

}  // namespace

int LoadWatch::threads_for_next(Clock::time_point now, int64_t preemptions) {
  if (now - since_ < kWindow) {
    return threads_;
  }
  const double rate = static_cast<double>(preemptions - preemptions_) /
                      std::chrono::duration<double>(now - since_).count();
  since_ = now;
  preemptions_ = preemptions;
  if (rate > kManyPerSecond) {
    threads_ = std::max(threads_ / 2, 1);
    calm_ = 0;
  } else if (++calm_ >= patience_ && threads_ < most_) {
    threads_ = std::min(2 * threads_, most_);
    patience_ = std::min(2 * patience_, kMaxPatience);
    calm_ = 0;
  }
  return threads_;
}

std::optional<int> processors_by_quota() {
  // Lines of "id:controllers:path"; version 2 has one, with id 0 and no controllers.
  std::ifstream groups("/proc/self/cgroup");
  std::optional<double> least;
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && ("," + controllers + ",").find(",cpu,") == std::string::npos) {
      continue;
    }
    const fs::path root = fs::path("/sys/fs/cgroup") / controllers;
    // A container may see its own group at the root, whatever the path says.
    for (fs::path path = line.substr(second + 1);; path = path.parent_path()) {
      const std::optional<double> quota = quota_of(root / path.relative_path());
      if (quota && (!least || *quota < *least)) {
        least = quota;
      }
      if (path == path.parent_path()) {
        break;
      }
    }
  }
  return least ? std::optional(std::max(static_cast<int>(*least), 1)) : std::nullopt;
}

void choose_threads(std::optional<int64_t> asked, bool watched) {
  if (asked) {
    at::set_num_threads(static_cast<int>(*asked));
    return;
  }
  const std::optional<int> granted = processors_by_quota();
  if (granted && *granted < at::get_num_threads()) {
    at::set_num_threads(*granted);
  }
  if (watched) {
    watch.emplace(at::get_num_threads(), LoadWatch::Clock::now(), preemptions());
  }
}

void watch_load() {
  if (watch) {
    const int threads = watch->threads_for_next(LoadWatch::Clock::now(), preemptions());
    if (threads != at::get_num_threads()) {
      at::set_num_threads(threads);
    }
  }
}

}  // namespace warpfuse::host
