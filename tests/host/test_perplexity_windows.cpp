// Which windows a text is cut into: each token but the first is scored once, with the context that
// was asked for.

#include <cmath>

#include "runtime/score/perplexity.h"
#include "support/catch.h"

using namespace warpfuse::host;

TEST_CASE("windows score each token but the first once", "[perplexity]") {
  const int64_t window = GENERATE(2, 3, 8, 64);
  const int64_t stride = GENERATE_COPY(
      filter([=](int64_t s) { return s <= window; }, values<int64_t>({1, 2, 3, 5, 8, 64})));
  for (int64_t tokens = 2; tokens <= 70; ++tokens) {
    INFO("window " << window << ", stride " << stride << ", tokens " << tokens);
    int64_t scored = 0;
    for (const ScoringWindow& w : scoring_windows(tokens, window, stride)) {
      REQUIRE(w.begin + w.seen == scored);  // the first prediction that is this window's
      REQUIRE(w.seen >= 0);
      REQUIRE(w.scored() > 0);
      REQUIRE(w.length <= window);
      REQUIRE(w.begin + w.length < tokens);  // each of its tokens has one after it
      if (w.begin > 0) {
        REQUIRE(w.seen + 1 >= window - stride + 1);  // tokens before the first that it scores
      }
      scored += w.scored();
    }
    REQUIRE(scored == tokens - 1);
  }
}

TEST_CASE("all windows but the last are whole", "[perplexity]") {
  const std::vector<ScoringWindow> windows = scoring_windows(21, 8, 4);
  REQUIRE(windows.size() == 4);
  for (size_t i = 0; i < windows.size(); ++i) {
    CHECK(windows[i].begin == static_cast<int64_t>(4 * i));
    CHECK(windows[i].length == 8);
    CHECK(windows[i].seen == (i == 0 ? 0 : 4));
  }
  CHECK(scoring_windows(22, 8, 4).back().length == 5);
  CHECK(scoring_windows(22, 8, 4).back().scored() == 1);
}

TEST_CASE("fewer than two tokens have nothing to score", "[perplexity]") {
  CHECK(scoring_windows(0, 8, 4).empty());
  CHECK(scoring_windows(1, 8, 4).empty());
  CHECK(scoring_windows(2, 8, 4).size() == 1);
}

TEST_CASE("figures of a score", "[perplexity]") {
  const Score score{.tokens = 4, .negative_log_likelihood = 4 * std::log(8.0), .seconds = 2};
  CHECK(std::abs(score.perplexity() - 8) < 1e-12);
  CHECK(std::abs(score.bits_per_byte(6) - 2) < 1e-12);  // 4 x 3 bits over 6 bytes
  CHECK(score.tokens_per_second() == 2);
}
