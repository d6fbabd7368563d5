// What a measurement of warpfuse tune is worth, and which candidates are chosen.

#include <tune/choice.h>

#include <cmath>

#include "support/catch.h"

namespace {

using warpfuse::host::bench::Percentiles;
using namespace warpfuse::host::tune;

Percentiles exact(double us) { return {us, us, us}; }
Percentiles about(double us, double noise) { return {us - noise, us, us + noise}; }

}  // namespace

TEST_CASE("a time wins where it is less beyond noise", "[tune]") {
  CHECK(wins(exact(98), exact(100)));
  CHECK_FALSE(wins(exact(99.5), exact(100)));  // less than 1 %
  CHECK_FALSE(wins(exact(100), exact(100)));
  CHECK_FALSE(wins(exact(102), exact(100)));
  CHECK_FALSE(wins(about(95, 6), exact(100)));  // its own samples lie further apart
  CHECK_FALSE(wins(exact(95), about(100, 6)));
  CHECK(wins(about(90, 6), about(100, 6)));
}

TEST_CASE("the fastest candidate that wins is chosen, and no other of the same rows", "[tune]") {
  const std::vector<OfProbes> candidates{
      {exact(97)}, {exact(80)}, {about(60, 50)}, {exact(79.9)}, {std::nullopt}};
  CHECK(choose({exact(100)}, candidates) == std::vector<size_t>{3});
  CHECK(choose({exact(80)}, candidates).empty());  // a tie changes nothing
  CHECK(choose({exact(100)}, {}).empty());
  CHECK(choose({exact(100)}, {{std::nullopt}}).empty());
}

TEST_CASE("a candidate that makes other rows of its class slower is left out", "[tune]") {
  const std::vector<Percentiles> start{exact(100), exact(100)};
  CHECK(choose(start, {{exact(50), exact(102)}, {exact(90), exact(100)}}) ==
        std::vector<size_t>{1});
  CHECK(choose(start, {{exact(50), exact(102)}}).empty());
  CHECK(choose(start, {{exact(50), exact(100.6)}}).empty());
  CHECK(choose(start, {{exact(50), about(101, 6)}}).empty());  // noise is no excuse
  CHECK(choose(start, {{exact(50), exact(100.4)}}) == std::vector<size_t>{0});
  CHECK(choose(start, {{exact(50), exact(104)}}, {{}, {.max_loss = 0.05}}) ==
        std::vector<size_t>{0});
  CHECK(choose(start, {{exact(104), exact(50)}}, {{}, {.max_loss = 0.05}}).empty());
  // Behind one that takes these rows it does not.
  CHECK(choose(start, {{exact(50), exact(102)}, {std::nullopt, exact(90)}}) ==
        std::vector<size_t>{1, 0});
}

TEST_CASE("a probe of less weight does not decide against another", "[tune]") {
  const std::vector<Percentiles> start{exact(100), exact(100)};
  const std::vector<OfProbes> candidates{{exact(50), exact(80)}, {exact(52), exact(60)}};
  CHECK(choose(start, candidates) == std::vector<size_t>{1});
  const std::vector<Stake> stakes{{}, {.weight = 0.1}};
  CHECK(choose(start, candidates, stakes) == std::vector<size_t>{0});
  const auto times = times_of({0}, start, candidates);
  CHECK(std::abs(gain_of(start, times, stakes) -
                 std::exp((std::log(2.) + 0.1 * std::log(1.25)) / 1.1)) < 1e-9);
}

TEST_CASE("lines for rows of other kinds add up, each where it gains most", "[tune]") {
  const std::vector<Percentiles> start{exact(100), exact(100)};
  // 0 takes all rows; 1 takes those that are not aligned alone, and is better for them.
  const std::vector<OfProbes> candidates{{exact(60), exact(80)}, {std::nullopt, exact(70)}};
  CHECK(choose(start, candidates) == std::vector<size_t>{1, 0});
  // Where 1 is first, 0 must not take its rows away: its line comes behind.
  const std::vector<OfProbes> other{{exact(80), exact(80)}, {std::nullopt, exact(50)}};
  CHECK(choose(start, other) == std::vector<size_t>{1, 0});
  // Nor does it where it is chosen first, if that loses more than it gains.
  const std::vector<OfProbes> third{
      {exact(50), exact(90)}, {std::nullopt, exact(60)}, {exact(48), exact(88)}};
  CHECK(choose(start, third) == std::vector<size_t>{1, 2});
  const auto times = times_of({1, 0}, start, other);
  CHECK(times[0].p50 == 80);
  CHECK(times[1].p50 == 50);
  CHECK(std::abs(gain_of(start, times) - 100 / std::sqrt(80. * 50)) < 1e-9);
  CHECK(gain_of(start, times_of({}, start, other)) == 1);
}

TEST_CASE("two lines that win together are found where neither does alone", "[tune]") {
  // 0 is what the start has for rows that are not aligned; 1 is slower there.
  const std::vector<Percentiles> start{exact(100), exact(100)};
  const std::vector<OfProbes> candidates{{std::nullopt, exact(100)}, {exact(60), exact(130)}};
  CHECK(choose(start, candidates) == std::vector<size_t>{0, 1});
  CHECK(choose(start, {{exact(60), exact(130)}}).empty());
}

TEST_CASE("a candidate that is slow on rows that are not aligned may be fast on those that are",
          "[tune]") {
  Reach reach(2);
  CHECK(reach.has(0, true));
  reach.add(0, false, 3);
  CHECK_FALSE(reach.has(0, false));
  CHECK(reach.has(0, true));
  CHECK(reach.has(1, false));
  reach.add(0, true, 1.5);
  CHECK_FALSE(reach.has(0, true));
  reach.add(0, true, 1.3);  // on one probe at least
  CHECK(reach.has(0, true));
  reach.add(0, true, 2);
  CHECK(reach.has(0, true));
}

TEST_CASE("a class is divided where a part of it has a faster run", "[tune]") {
  const std::vector<Percentiles> start{exact(100), exact(100)};
  const std::vector<OfProbes> candidates{{exact(60), exact(80)}, {exact(90), exact(70)}};
  CHECK(choose(start, candidates) == std::vector<size_t>{0});
  CHECK(divided(start, candidates, {0}));
  CHECK(divided(start, candidates, {1}));
  CHECK(divided(start, candidates, {}));
  CHECK_FALSE(divided(start, {{exact(60), exact(80)}, {exact(90), exact(79)}}, {0}));
  CHECK_FALSE(divided(start, {{exact(60), exact(80)}, {std::nullopt, exact(70)}}, {1, 0}));
  CHECK_FALSE(divided(start, {{exact(60), exact(80)}, {exact(90), about(70, 11)}}, {0}));
  CHECK_FALSE(divided(start, {}, {}));
}

TEST_CASE("the budget holds: a class begins only if the longest so far would fit", "[tune]") {
  double elapsed = 4;
  size_t measured = 0;
  Budget budget{.seconds = 120};
  while (budget.allows_another(elapsed)) {
    const double of_class = 0.5 + static_cast<double>(measured % 7);
    elapsed += of_class;
    budget.add(of_class);
    ++measured;
  }
  CHECK(elapsed <= 120);
  CHECK(elapsed > 110);
  CHECK_FALSE(Budget{.seconds = 2}.allows_another(3));
  CHECK(seconds_left({.seconds = 120}, 4, 0, 50) == 116);
  CHECK(seconds_left({.seconds = 120}, 10, 10, 20) == 10);
  CHECK(seconds_left({.seconds = 120}, 10, 1, 200) == 110);
  CHECK(seconds_left({.seconds = 120}, 130, 10, 20) == 0);
}
