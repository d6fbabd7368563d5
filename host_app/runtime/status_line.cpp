#include "runtime/status_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>

#include "runtime/output.h"

namespace warpfuse::host {

StatusLine::StatusLine() : terminal_(isatty(STDERR_FILENO) == 1) {}

StatusLine::~StatusLine() { clear(); }

void StatusLine::show(const std::string& text) const {
  if (terminal_) {
    print_error("\r\033[K{}", text);
  }
}

void StatusLine::clear() const { show(""); }

std::string time_left(std::chrono::steady_clock::time_point start, double done, double all) {
  if (done <= 0) {
    return "";
  }
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  const auto seconds = std::llround(spent.count() / done * (all - done));
  return fmt::format(", {}:{:02} left", seconds / 60, seconds % 60);
}

}  // namespace warpfuse::host
