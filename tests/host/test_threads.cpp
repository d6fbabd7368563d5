// How many threads the host takes on a CPU that others use too.

#include <chrono>

#include "runtime/threads.h"
#include "support/catch.h"

using warpfuse::host::LoadWatch;

namespace {

// A process under a load: `lost` preemptions per second.
class Watched {
 public:
  explicit Watched(int threads) : watch_(threads, LoadWatch::Clock::time_point(), 0) {}

  int after(std::chrono::milliseconds time, int64_t lost) {
    for (; time.count() > 0; time -= std::chrono::milliseconds(10)) {
      now_ += std::chrono::milliseconds(10);
      preemptions_ += lost;
      threads_ = watch_.threads_for_next(now_, preemptions_ / 100);
    }
    return threads_;
  }

 private:
  LoadWatch watch_;
  LoadWatch::Clock::time_point now_;
  int64_t preemptions_ = 0;
  int threads_ = 0;
};

constexpr int64_t kIdle = 70;
constexpr int64_t kBusy = 300;

}  // namespace

TEST_CASE("all threads are kept while nobody else needs the processors", "[threads]") {
  Watched process(16);
  CHECK(process.after(std::chrono::seconds(60), kIdle) == 16);
}

TEST_CASE("under a load the threads are halved, window by window", "[threads]") {
  Watched process(16);
  CHECK(process.after(std::chrono::milliseconds(90), kBusy) == 16);
  CHECK(process.after(std::chrono::milliseconds(10), kBusy) == 8);
  CHECK(process.after(std::chrono::milliseconds(100), kBusy) == 4);
  CHECK(process.after(std::chrono::seconds(10), kBusy) == 1);
}

TEST_CASE("the threads come back when the load is gone", "[threads]") {
  Watched process(3);
  CHECK(process.after(std::chrono::milliseconds(500), kBusy) == 1);
  CHECK(process.after(std::chrono::milliseconds(900), kIdle) == 1);
  CHECK(process.after(std::chrono::milliseconds(100), kIdle) == 2);
  CHECK(process.after(std::chrono::seconds(5), kIdle) == 3);
}

TEST_CASE("vain attempts grow rare", "[threads]") {
  Watched process(2);
  int threads = 2;
  int attempts = 0;
  for (int window = 0; window < 36000; ++window) {  // an hour in which two threads are too many
    threads = process.after(std::chrono::milliseconds(100), threads == 2 ? kBusy : kIdle);
    attempts += threads == 2 ? 1 : 0;
  }
  CHECK(attempts > 10);
  CHECK(attempts < 80);
}

TEST_CASE("a quota is at least one processor", "[threads]") {
  CHECK(warpfuse::host::processors_by_quota().value_or(1) >= 1);
}
