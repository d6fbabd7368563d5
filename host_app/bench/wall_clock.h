#pragma once

#include <chrono>

namespace warpfuse::host::bench {

using WallClock = std::chrono::steady_clock;

inline double microseconds_since(WallClock::time_point start) {
  return std::chrono::duration<double, std::micro>(WallClock::now() - start).count();
}

template <typename Action>
double wall_us(const Action& action) {
  const WallClock::time_point start = WallClock::now();
  action();
  return microseconds_since(start);
}

}  // namespace warpfuse::host::bench
