#pragma once

#include "bench/benchmark.h"

namespace warpfuse::host::bench {

// The rows that were asked for, as the command line has them.
struct Request {
  std::string op;                     // the name of an operator, or all
  std::string shapes;                 // presets and shapes, separated by commas
  std::optional<std::string> dtypes;  // overrides the presets'; float32 for shapes in numbers
  std::optional<std::string> masks;   // the same; none for shapes in numbers
  bool backward = false;              // backward rows too, where a preset has forward ones alone
                                      // (fused_logprob: also rows of both together,
                                      // linear_dropout_softmax: those instead)
};

// Each row once, in the order of the request. Throws Error(usage) that names the option, what was
// expected and what was given, also when no row is left.
std::vector<Case> plan(const Request& request);

// Each number of 1..`most` once, in their order. Throws Error(usage) that names the option.
std::vector<int64_t> integer_list(const std::string& option, const std::vector<std::string>& items,
                                  int64_t most);

}  // namespace warpfuse::host::bench
