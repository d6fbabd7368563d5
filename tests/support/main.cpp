// The main program of every Catch2 test executable.
//
// exit code  0   every selected test case ran and passed
//            1   an assertion failed
//            77  none failed, at least one was skipped (ctest: SKIP_RETURN_CODE)
//            2   the selection matched no test case, or a preparation failed
//            else Catch2's own: bad command line
//
// WARPFUSE_TEST_THREADS=<number> runs the tests with so many threads, whatever cores there are.
// --fuzz <number> draws so many random chains in cases tagged [fuzz].
// --rng-seed <number>, Catch2's, also seeds ATen's CPU generator before every case; a default of
// ours, since ATen's own differs from run to run.
//
// A program that needs something before its tests calls before_tests (before_tests.h).

#define CATCH_CONFIG_RUNNER
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "before_tests.h"
#include "catch.h"

namespace {

constexpr int kFailed = 1;
constexpr int kNothingRan = 2;
constexpr int kSkipped = 77;
constexpr std::uint32_t kDefaultSeed = 20;

struct Tally {
  int ran = 0;
  bool skipping = false;               // the running test case has called skip_test
  std::map<std::string, int> skipped;  // reason -> test cases
};

Tally& tally() {
  static Tally instance;
  return instance;
}

#if CATCH_VERSION_MAJOR == 2
using ListenerBase = Catch::TestEventListenerBase;
#else
using ListenerBase = Catch::EventListenerBase;
#endif

class TallyListener : public ListenerBase {
 public:
  using ListenerBase::ListenerBase;

  void testCaseStarting(const Catch::TestCaseInfo&) override {
    tally().skipping = false;
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::scoped_lock lock(generator.mutex());
    generator.set_current_seed(m_config->rngSeed());
  }

  void testCaseEnded(const Catch::TestCaseStats&) override {
    if (!tally().skipping) {
      ++tally().ran;
    }
  }
};

}  // namespace

CATCH_REGISTER_LISTENER(TallyListener)

int exit_code(int failures, bool has_run, bool has_skipped) {
  if (!has_run && !has_skipped) {
    return kNothingRan;
  }
  return failures != 0 ? kFailed : has_skipped ? kSkipped : 0;
}

void skip_test(const std::string& reason) {
  if (!tally().skipping) {
    ++tally().skipped[reason];
  }
  tally().skipping = true;
}

namespace {

std::vector<void (*)()>& preparations() {
  static std::vector<void (*)()> instance;
  return instance;
}

// libtorch ignores an OMP_NUM_THREADS above the number of cores.
void set_threads() {
  const char* asked = std::getenv("WARPFUSE_TEST_THREADS");
  if (asked == nullptr) {
    return;
  }
  const std::string text = asked;
  int threads = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), threads);
  if (error != std::errc() || end != text.data() + text.size() || threads < 1) {
    throw std::invalid_argument("WARPFUSE_TEST_THREADS: expected a number from 1, got \"" + text +
                                "\"");
  }
  at::set_num_threads(threads);
}

}  // namespace

int before_tests(void (*preparation)()) {
  preparations().push_back(preparation);
  return 0;
}

int main(int argc, char** argv) {
  std::vector<char*> arguments;  // Catch2's
  for (int i = 0; i < argc; ++i) {
    if (std::string(argv[i]) == "--fuzz" && i + 1 < argc) {
      setenv("WARPFUSE_FUZZ_CHAINS", argv[++i], /*overwrite=*/1);
    } else {
      arguments.push_back(argv[i]);
    }
  }
  Catch::Session session;
  session.configData().rngSeed = kDefaultSeed;
  const auto count = static_cast<int>(arguments.size());
  if (const int error = session.applyCommandLine(count, arguments.data()); error != 0) {
    return error;
  }
  const auto& options = session.configData();
#if CATCH_VERSION_MAJOR == 2
  const bool listing = options.listTests || options.listTags || options.listReporters ||
                       options.listTestNamesOnly || options.showHelp;
#else
  const bool listing = options.listTests || options.listTags || options.listReporters ||
                       options.listListeners || options.showHelp;
#endif
  try {
    set_threads();
    for (void (*preparation)() : preparations()) {
      preparation();
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return kNothingRan;
  }
  const int result = session.run();
  if (listing) {
    return result;
  }
  for (const auto& [reason, count] : tally().skipped) {
    std::cout << "skipped " << count << " test case(s): " << reason << "\n";
  }
  const int code = exit_code(result, tally().ran > 0, !tally().skipped.empty());
  if (code == kNothingRan) {
    std::cerr << "the selection matched no test case\n";
  }
  return code;
}
