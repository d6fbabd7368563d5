#pragma once

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <string>
#include <string_view>
#include <utility>

namespace warpfuse::host {

// Commands print through these functions, so that no failed write is lost: every write to stdout is
// checked and throws Error(output). Failures are reported on stderr, so a failure to write there is
// ignored.

// Gives a standard stream that the process was started without a file of its own, on which reads
// and writes fail as on the closed stream; else the next file that is opened would take its number.
void hold_standard_streams();

void write_output(std::string_view text);
// Throws when anything written so far did not reach stdout.
void flush_output();

template <typename... Args>
void print(fmt::format_string<Args...> format, Args&&... args) {
  write_output(fmt::format(format, std::forward<Args>(args)...));
}

void write_error(std::string_view text);

template <typename... Args>
void print_error(fmt::format_string<Args...> format, Args&&... args) {
  write_error(fmt::format(format, std::forward<Args>(args)...));
}

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

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// ", 1:05 left", as the `done` of `all` parts since `start` took it; empty before the first.
std::string time_left(std::chrono::steady_clock::time_point start, double done, double all);

// While one lives, the first Ctrl-C (SIGINT) is only noted; the second ends the process as usual. A
// process that was started with SIGINT ignored, as by nohup or a shell's background job, goes on
// ignoring it.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  struct sigaction before_{};
};

bool interrupted();

}  // namespace warpfuse::host
