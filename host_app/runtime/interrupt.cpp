#include "runtime/interrupt.h"

namespace warpfuse::host {
namespace {

volatile std::sig_atomic_t noted = 0;

void note(int) { noted = 1; }

}  // namespace

InterruptGuard::InterruptGuard() {
  noted = 0;
  struct sigaction action {};
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
