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

// The algorithms that --algorithms asks for, by the rows that take them.
class Algorithms {
 public:
  // `asked`: all, none or names; where it is not given, those of softmax run on 1024x8192 alone.
  // Throws Error(usage) for a name that no row of these can take.
  Algorithms(const std::optional<std::string>& asked, bool cuda, const std::vector<Case>& cases);

  std::vector<std::string> of(const Case& c) const;
  // Those that the rows call, each once.
  std::vector<std::string> operators(const std::vector<Case>& cases) const;

 private:
  bool cuda_;
  bool everywhere_;                               // not on one shape alone
  std::optional<std::vector<std::string>> list_;  // empty: all
  std::vector<std::string> known_;                // to the operators of these rows
};

}  // namespace warpfuse::host::bench
