#pragma once

#include "bench/benchmark.h"

namespace warpfuse::host::bench {

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
