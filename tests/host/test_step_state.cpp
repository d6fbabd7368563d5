// What a decode step leaves for the next one and for the host.

#include <array>
#include <vector>

#include "runtime/decode/step_state.h"
#include "support/catch.h"

using namespace warpfuse::host;

TEST_CASE("a step moves the rows on, and first tokens are published as its tokens are",
          "[decode]") {
  std::vector<int64_t> ids{7, 7, 7}, positions{4, 9, 0}, draws{1, 2, 3}, names{5, 6, 7};
  std::vector<int64_t> active{1, 0, 1};
  std::vector<int64_t> ring(kRingSteps * 3, -7);
  int64_t count = kRingSteps - 1, published = 0;
  const StepState state{.rows = 3,
                        .ids = ids.data(),
                        .positions = positions.data(),
                        .draws = draws.data(),
                        .names = names.data(),
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

  const std::vector<int64_t> rows{1, 0}, at{20, 0}, named{8, 9}, tokens{31, -1};
  FirstTokens first{.count = 2,
                    .rows = rows.data(),
                    .positions = at.data(),
                    .names = named.data(),
                    .tokens = tokens.data()};
  begin(state, first);  // not published
  CHECK(published == kRingSteps + 1);
  first.published = true;
  begin(state, first);
  CHECK(ids == std::vector<int64_t>{0, 31, 23});
  CHECK(positions == std::vector<int64_t>{0, 20, 2});
  CHECK(draws == std::vector<int64_t>{1, 1, 5});
  CHECK(names == std::vector<int64_t>{9, 8, 7});
  CHECK(active == std::vector<int64_t>{1, 1, 1});
  CHECK(count == kRingSteps + 2);
  CHECK(published == kRingSteps + 2);
  CHECK(std::vector<int64_t>(ring.begin() + 3, ring.begin() + 5) == std::vector<int64_t>{-1, 31});
}
