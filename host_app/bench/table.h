#pragma once

#include <chrono>
#include <cstddef>

#include "bench/case.h"

namespace warpfuse::host::bench {

// What the user sees on stdout: a line for the run, one for each row and variant as they come, and
// the launches at the end.
void print_head(const Json& document);
void print_row(const Json& row);
void print_launches(const Json& rows);

// One line on stderr that is overwritten, where stderr is a terminal: which row is being measured,
// and the time left, as the rows before took it.
class Progress {
 public:
  explicit Progress(size_t rows);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(size_t row, const Case& c) const;
  // Before something else is printed.
  void clear() const;

 private:
  size_t rows_;
  bool terminal_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace warpfuse::host::bench
