#include "rowwise/launch_log.h"

#include <atomic>
#include <mutex>
#include <sstream>
#include <vector>

namespace warpfuse {
namespace {

std::atomic<bool> recording_on{false};
std::mutex mutex;
std::vector<LaunchRecord>& records() {
  static auto* list = new std::vector<LaunchRecord>;  // outlives every static destructor
  return *list;
}

}  // namespace

void LaunchLog::record(bool on) {
  const std::lock_guard lock(mutex);
  if (on) {
    records().clear();
  }
  recording_on = on;
}

bool LaunchLog::recording() { return recording_on.load(std::memory_order_relaxed); }

void LaunchLog::add(const LaunchRecord& record) {
  const std::lock_guard lock(mutex);
  records().push_back(record);
}

std::string LaunchLog::json() {
  const std::lock_guard lock(mutex);
  std::ostringstream text;
  const char* separator = "[";
  for (const LaunchRecord& r : records()) {
    text << separator << "{\"tier\": \"" << r.tier << "\", \"kernel\": \"" << r.kept_in
         << "\", \"grid\": " << r.grid << ", \"threads\": " << r.threads
         << ", \"cluster\": " << r.cluster << ", \"lane_packs\": " << r.lane_packs
         << ", \"registers\": " << r.registers << ", \"shared_bytes\": " << r.shared_bytes
         << ", \"local_bytes\": " << r.local_bytes << ", \"blocks_per_sm\": " << r.blocks_per_sm
         << ", \"warps_per_sm\": " << r.blocks_per_sm * r.threads / 32
         << ", \"max_warps_per_sm\": " << r.max_warps_per_sm << "}";
    separator = ", ";
  }
  text << (records().empty() ? "[]" : "]");
  return text.str();
}

}  // namespace warpfuse
