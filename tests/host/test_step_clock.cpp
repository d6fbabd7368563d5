// When the host expects a token.

#include "runtime/decode/step_memory.h"
#include "support/catch.h"

using warpfuse::host::StepClock;
using namespace std::chrono_literals;

TEST_CASE("tokens at even times are expected at those times", "[step-clock]") {
  StepClock clock;
  StepClock::Clock::time_point now{1s};
  clock.arrived(now);
  for (int i = 0; i < 100; ++i) {
    clock.arrived(now += 300us);
  }
  CHECK(clock.due() - now > 295us);
  CHECK(clock.due() - now < 305us);
  // Two that are seen together are no shorter step.
  clock.arrived(clock.due());
  clock.arrived(clock.due());
  CHECK(clock.due() - now > 885us);
  CHECK(clock.due() - now < 915us);
}

TEST_CASE("a short step among long ones is not looked for too late", "[step-clock]") {
  StepClock clock(/*varies=*/true);
  StepClock::Clock::time_point now{1s};
  clock.arrived(now);
  for (int i = 0; i < 100; ++i) {
    clock.arrived(now += i % 2 == 0 ? 400us : 800us);
    CHECK(clock.first_look() - now < 400us);
  }
}

TEST_CASE("a token at even times takes one look, soon after it came", "[step-clock]") {
  constexpr int kTokens = 1000;
  constexpr std::chrono::microseconds kPollInterval{20};
  const std::chrono::microseconds step{GENERATE(121, 410)}, oversleep{GENERATE(5, 55)};
  INFO(step.count() << " us, wakes " << oversleep.count() << " us late");
  StepClock clock;
  StepClock::Clock::time_point came{1s}, now{1s};
  clock.arrived(now);
  int looks = 0;
  StepClock::Clock::duration late{};
  for (int token = 0; token < kTokens; ++token) {
    came += step;
    if (came > now) {
      now = std::max(now, clock.first_look()) + oversleep;
      clock.woke(now);
      ++looks;
    }
    if (came <= now) {
      clock.was_there(now);
    } else {
      for (; now < came; ++looks) {
        now += kPollInterval + oversleep;
      }
      clock.arrived(now);
    }
    late += now - came;
  }
  CHECK(looks < 1.5 * kTokens);
  CHECK(late / kTokens < kPollInterval + oversleep);
}

TEST_CASE("a pause is no long step", "[step-clock]") {
  StepClock clock;
  StepClock::Clock::time_point now{1s};
  clock.arrived(now);
  CHECK(clock.due() - now <= 250us);
  clock.arrived(now += 10min);
  CHECK(clock.due() - now <= 500us);
}
