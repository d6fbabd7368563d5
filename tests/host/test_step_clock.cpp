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
  StepClock clock;
  StepClock::Clock::time_point now{1s};
  clock.arrived(now);
  for (int i = 0; i < 100; ++i) {
    clock.arrived(now += i % 2 == 0 ? 400us : 800us);
    CHECK(clock.first_look() - now < 400us);
  }
}

TEST_CASE("a pause is no long step", "[step-clock]") {
  StepClock clock;
  StepClock::Clock::time_point now{1s};
  clock.arrived(now);
  CHECK(clock.due() - now <= 250us);
  clock.arrived(now += 10min);
  CHECK(clock.due() - now <= 500us);
}
