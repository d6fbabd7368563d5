#pragma once

#include <chrono>
#include <string>

namespace warpfuse::host {

// One line on stderr that is overwritten, where stderr is a terminal; nothing elsewhere, so that a
// log holds no progress.
class StatusLine {
 public:
  StatusLine();
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  void show(const std::string& text) const;
  // Before something else is printed.
  void clear() const;

 private:
  bool terminal_;
};

// ", 1:05 left", as the `done` of `all` parts since `start` took it; empty before the first.
std::string time_left(std::chrono::steady_clock::time_point start, double done, double all);

}  // namespace warpfuse::host
