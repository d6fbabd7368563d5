#pragma once

#include <chrono>
#include <cstddef>

#include "bench/case.h"
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

// The status line of a run: which row is being measured, and the time left, as the rows before took
// it.
class Progress {
 public:
  explicit Progress(size_t rows);

  void show(size_t row, const Case& c) const;
  // Before something else is printed.
  void clear() const { line_.clear(); }

 private:
  StatusLine line_;
  size_t rows_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace warpfuse::host::bench
