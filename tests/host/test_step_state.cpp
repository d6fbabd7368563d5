// What a decode step leaves for the next one and for the host.

#include <array>
#include <vector>

#include "runtime/decode/step_state.h"
#include "support/catch.h"

using warpfuse::host::advance;
using warpfuse::host::kRingSteps;
using warpfuse::host::StepState;

TEST_CASE("a step moves the rows on and publishes its tokens", "[decode]") {
  std::vector<int64_t> ids{7, 7, 7}, positions{4, 9, 0}, draws{1, 2, 3};
  const std::vector<int64_t> active{1, 0, 1};
  std::vector<int64_t> ring(kRingSteps * 3, -7);
  int64_t count = kRingSteps - 1, published = 0;
  const StepState state{.rows = 3,
                        .ids = ids.data(),
                        .positions = positions.data(),
                        .draws = draws.data(),
                        .active = active.data(),
                        .count = &count,
                        .ring = ring.data(),
                        .published = &published};
  advance(state, std::array<int64_t, 3>{11, 12, -1}.data(), 3);
  CHECK(ids == std::vector<int64_t>{11, 12, 0});  // -1: no token, which the host reports
  CHECK(positions == std::vector<int64_t>{5, 9, 1});
  CHECK(draws == std::vector<int64_t>{2, 3, 4});
  CHECK(count == kRingSteps);
  CHECK(published == kRingSteps);
  const auto last = ring.end() - 3;
  CHECK(std::vector<int64_t>(last, ring.end()) == std::vector<int64_t>{11, 12, -1});
  CHECK(std::all_of(ring.begin(), last, [](int64_t token) { return token == -7; }));

  advance(state, std::array<int64_t, 3>{21, 22, 23}.data(), 3);  // from the ring's start again
  CHECK(std::vector<int64_t>(ring.begin(), ring.begin() + 3) == std::vector<int64_t>{21, 22, 23});
  CHECK(*last == 11);
}
