#pragma once

#include <array>
#include <csignal>
#include <filesystem>

namespace warpfuse::host {

// While one lives, the signals that end a program (SIGHUP, SIGINT, SIGTERM) are only noted, so that
// nothing is left of a file that is being written; when the last one ends they do what they would
// have done. Signals that were ignored stay so.
class HeldSignals {
 public:
  HeldSignals();
  ~HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  // Throws Error(interrupted) if one came: `path` is not written to its end.
  static void check(const std::filesystem::path& path);

 private:
  static constexpr std::array kSignals{SIGHUP, SIGINT, SIGTERM};

  static void note(int signal);

  std::array<struct sigaction, kSignals.size()> before_{};
};

}  // namespace warpfuse::host
