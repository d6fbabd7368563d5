#pragma once

#include <cstddef>

#include "bench/benchmark.h"
#include "runtime/output.h"

namespace warpfuse::host::bench {

// What the user sees on stdout: a line for the run, one for each row and variant as they come, and
// the launches at the end.
void print_head(const Json& document);
void print_row(const Json& row);
void print_launches(const Json& rows);
// The rows of `bench generate`, one line each.
void print_generation(const Json& row);
void print_prefill(const Json& row);

}  // namespace warpfuse::host::bench
