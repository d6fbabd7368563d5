#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace warpfuse {

/// One kernel launch: its configuration, and what the compiler and the device make of it.
struct LaunchRecord {
  const char* tier;
  const char* kept_in;  // registers, shared or none
  int lane_packs;       // in registers; 0: none
  int64_t grid;
  int threads;
  int cluster;
  int registers;        // of a thread
  size_t shared_bytes;  // of a block, static and dynamic
  size_t local_bytes;   // of a thread: spills
  int blocks_per_sm;
  int max_warps_per_sm;
};

/// A log of launches, off until it is turned on: what ran, for benchmarks and tests.
class LaunchLog {
 public:
  /// Turning it on clears it.
  static void record(bool on);
  static bool recording();
  static void add(const LaunchRecord& record);
  /// A JSON array, one object a launch.
  static std::string json();
};

}  // namespace warpfuse
