#pragma once

#include <string>

#include "bench/case.h"
#include "bench/timer.h"
#include "runtime/plugin.h"

namespace warpfuse::host {
class CudaRuntime;
}

namespace warpfuse::host::bench {

// Date, command, versions and device of a run. `runtime` is null on the CPU.
Json identity_of(const std::string& command, const Plugin& plugin, const CudaRuntime* runtime);

// The same with timing method, tuning table and large copy: all of the JSON but the rows.
Json head_of(const std::string& command, const Plugin& plugin, const CudaRuntime* runtime,
             Timer& timer, const Timer::LargeCopy& copy);

}  // namespace warpfuse::host::bench
