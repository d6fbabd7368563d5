#pragma once

#include <functional>

#include "bench/case.h"

namespace warpfuse::host::bench {

// The kernels that the plugin launches during `action`, as its own log has them: an array of
// objects with tier, grid, threads, registers, occupancy and so on. Empty where the plugin keeps no
// such log.
Json launches_during(const std::function<void()>& action);

// The plugin's tuning table as text; empty where it has none.
std::string tuning_text();

// Replaces the tuning table. Throws Error(plugin) where the plugin cannot, Error(usage) for a text
// that it refuses; `path` is where the text came from.
void set_tuning(const std::string& text, const std::string& path);

}  // namespace warpfuse::host::bench
