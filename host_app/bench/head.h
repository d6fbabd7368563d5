#pragma once

#include <string>

#include "bench/case.h"
#include "bench/timer.h"
#include "runtime/plugin.h"

namespace warpfuse::host {
class CudaRuntime;
}

namespace warpfuse::host::bench {

// When, with what and on what a run measured. `runtime` is null on the CPU.
Json identity_of(const std::string& command, const Plugin& plugin, const CudaRuntime* runtime,
                 const Timer& timer);

// All of the JSON but the rows: when, with what and how a run measured.
Json head_of(const std::string& command, const Plugin& plugin, const CudaRuntime* runtime,
             Timer& timer, const Timer::LargeCopy& copy);

}  // namespace warpfuse::host::bench
