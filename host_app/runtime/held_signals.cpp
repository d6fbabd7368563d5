#include "runtime/held_signals.h"

#include <algorithm>

#include "runtime/errors.h"

namespace warpfuse::host {
namespace {

volatile std::sig_atomic_t held_back[NSIG] = {};

}  // namespace

void HeldSignals::note(int signal) { held_back[signal] = 1; }

HeldSignals::HeldSignals() {
  struct sigaction action{};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &action, &before_[i]);
    if (before_[i].sa_handler == SIG_IGN) {
      sigaction(kSignals[i], &before_[i], nullptr);
    }
  }
}

HeldSignals::~HeldSignals() {
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &before_[i], nullptr);
    if (held_back[kSignals[i]] != 0) {
      held_back[kSignals[i]] = 0;
      static_cast<void>(raise(kSignals[i]));
    }
  }
}

void HeldSignals::check(const std::filesystem::path& path) {
  if (std::ranges::any_of(kSignals, [](int signal) { return held_back[signal] != 0; })) {
    fail(ExitCode::interrupted, "{}: not written: interrupted", path.string());
  }
}

}  // namespace warpfuse::host
