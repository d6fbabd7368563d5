#include "runtime/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <system_error>

#include "runtime/errors.h"

namespace warpfuse::host {
namespace {

[[noreturn]] void fail_to_write() {
  const std::error_code reason(errno, std::generic_category());
  // Else the rest of the buffer would be tried again when the program ends.
  std::clearerr(stdout);
  fail(ExitCode::output, "stdout: cannot be written: {}", reason.message());
}

volatile std::sig_atomic_t noted = 0;

void note(int) { noted = 1; }

}  // namespace

void hold_standard_streams() {
  const auto hold = [](int descriptor, int access) {
    if (fcntl(descriptor, F_GETFD) == -1 && errno == EBADF) {
      // open() takes the lowest number that is free: this one, as those below are taken by now.
      static_cast<void>(open("/dev/null", access));
    }
  };
  hold(STDIN_FILENO, O_WRONLY);
  hold(STDOUT_FILENO, O_RDONLY);
  hold(STDERR_FILENO, O_WRONLY);
}

void write_output(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) {
    fail_to_write();
  }
}

void flush_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    fail_to_write();
  }
}

void write_error(std::string_view text) {
  static_cast<void>(std::fwrite(text.data(), 1, text.size(), stderr));
  static_cast<void>(std::fflush(stderr));
}

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
  const auto seconds = std::llround(seconds_since(start) / done * (all - done));
  return fmt::format(", {}:{:02} left", seconds / 60, seconds % 60);
}

InterruptGuard::InterruptGuard() {
  noted = 0;
  struct sigaction action{};
  action.sa_handler = note;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigaction(SIGINT, &action, &before_);
  if (before_.sa_handler == SIG_IGN) {
    sigaction(SIGINT, &before_, nullptr);
  }
}

InterruptGuard::~InterruptGuard() { sigaction(SIGINT, &before_, nullptr); }

bool interrupted() { return noted != 0; }

}  // namespace warpfuse::host
