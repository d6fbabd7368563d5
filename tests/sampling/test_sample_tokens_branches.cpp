// The branches of sample_tokens on the CPU, each aimed at by shape and proved by a counter. Every
// token is the one that sorting gives.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "sample_tokens/sample_search.h"
#include "support/inputs.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/sampling.h"
#include "support/threads.h"

namespace {

constexpr int64_t kBlock = 64;  // tokens whose largest key the kernel knows
constexpr int64_t kFew = 512;   // keys of a list that is not narrowed by digits

/// A row's tokens under the cuts, likeliest first, lower ids first among equals, with their masses.
/// The values are float64 whatever the dtype of the row.
class SortedRow {
 public:
  SortedRow(const at::Tensor& row, const SampleArguments& arguments) : seed_(arguments.seed) {
    const at::Tensor values = row.to(at::kDouble).contiguous();
    const auto* x = values.const_data_ptr<double>();
    using Format = warpfuse::Float64Format;
    for (int64_t id = 0; id < values.numel(); ++id) {
      const int64_t key = Format::key(warpfuse::same_bits<uint64_t>(x[id]));
      if (key == Format::kNaN) {
        tokens_.clear();
        return;
      }
      if (key > -Format::kInfinity) {
        tokens_.push_back({key, id, 0});
      }
    }
    if (tokens_.empty()) {
      return;
    }
    std::ranges::sort(tokens_, {}, [](const Token& t) { return std::pair(-t.key, t.id); });
    if (arguments.temperature == 0) {
      tokens_.resize(1);
    }
    const double scale =
        arguments.temperature == 0 ? 1 : std::numbers::log2e / arguments.temperature;
    const warpfuse::TokenMass<Format> mass(tokens_[0].key, scale);
    for (Token& token : tokens_) {
      token.mass = mass(token.key);
    }
    cut(arguments);
  }

  int64_t token(int64_t row, int64_t step) const {
    if (tokens_.empty()) {
      return -1;
    }
    // The draw is among the tokens above the smallest by id, then among its ties.
    std::vector<Token> order = tokens_;
    const int64_t least = top_p_cuts_ ? least_ : std::numeric_limits<int64_t>::min();
    std::ranges::sort(order, {}, [&](const Token& t) { return std::pair(t.key == least, t.id); });
    uint64_t total = 0;
    for (const Token& token : order) {
      total += token.mass;
    }
    uint64_t at = warpfuse::upper_product(
        warpfuse::random_bits(static_cast<uint64_t>(seed_), row, step), total);
    size_t i = 0;
    while (order[i].mass <= at) {
      at -= order[i++].mass;
    }
    return order[i].id;
  }

 private:
  struct Token {
    int64_t key, id;
    uint64_t mass;
  };

  void cut(const SampleArguments& arguments) {
    if (const auto k = static_cast<size_t>(arguments.top_k); k > 0 && k < tokens_.size()) {
      std::erase_if(tokens_,
                    [least = tokens_[k - 1].key](const Token& t) { return t.key < least; });
    }
    if (arguments.top_p < 1) {
      uint64_t total = 0, kept = 0;
      for (const Token& token : tokens_) {
        total += token.mass;
      }
      const auto left_out = static_cast<uint64_t>(std::ldexp(1 - arguments.top_p, 64));
      const uint64_t target = total - warpfuse::upper_product(total, left_out);
      size_t count = 0;
      while (kept < target) {
        kept += tokens_[count++].mass;
      }
      tokens_.resize(count);
      least_ = tokens_.back().key;
      top_p_cuts_ = true;
    }
    const double least_mass = std::ceil(std::ldexp(arguments.min_p, warpfuse::kMassBits));
    std::erase_if(tokens_,
                  [&](const Token& t) { return static_cast<double>(t.mass) < least_mass; });
  }

  std::vector<Token> tokens_;
  int64_t seed_;
  int64_t least_ = 0;  // the key at which top_p cuts
  bool top_p_cuts_ = false;
};

/// Empty if every row's tokens of three steps are those of sorting.
std::string difference(const at::Tensor& logits, const SampleArguments& arguments) {
  std::vector<at::Tensor> tokens;
  for (int64_t step = 0; step < 3; ++step) {
    tokens.push_back(sample(logits, step, arguments));
  }
  for (int64_t row = 0; row < logits.size(0); ++row) {
    const SortedRow sorted(logits[row], arguments);
    for (int64_t step = 0; step < 3; ++step) {
      const int64_t got = tokens[step][row].item<int64_t>(), expected = sorted.token(row, step);
      if (got != expected) {
        return c10::str(describe(logits), ", ", describe(arguments), ", row ", row, ", step ", step,
                        ": token ", got, " instead of ", expected);
      }
    }
  }
  return "";
}

/// Rows that are hard to cut.
at::Tensor hard_rows(int64_t columns, at::ScalarType dtype) {
  const at::Tensor random = at::randn({columns}, at::kDouble).mul_(2);
  const at::Tensor ids = at::arange(columns, at::kLong);
  const auto with = [&](double value, const at::Tensor& where) {
    return random.masked_fill(where, value);
  };
  const std::vector<at::Tensor> rows = {
      random,
      std::get<0>(random.sort()),
      std::get<0>(random.sort(0, true)),
      random.round(),  // ties at every cut
      at::full_like(random, 1.5),
      at::zeros_like(random).masked_fill(ids.remainder(2).eq(0), -0.0),
      with(-kInf, ids.remainder(kBlock).ne(3)),  // a token per block
      with(-kInf, ids.ge(3)),
      with(-kInf, ids.ge(0)),
      with(kInf, ids.remainder(100).eq(7)),
      with(kNaN, ids.eq(columns - 1)),
      with(finfo_max(dtype), ids.eq(columns / 2))};
  return at::stack(rows).to(dtype);
}

constexpr int64_t kDrawn = 10;  // of the hard rows: the others hold nothing but -inf, or NaN

std::vector<SampleArguments> rules(int64_t top_k) {
  return {{.seed = 1, .top_k = top_k},
          {.seed = 2, .temperature = 0.8, .top_k = top_k, .top_p = 0.95},
          {.seed = 3, .temperature = 50, .top_k = top_k, .top_p = 0.5, .min_p = 0.01},
          {.seed = 4, .temperature = 0.3, .top_k = top_k, .min_p = 0.3},
          {.temperature = 0, .top_k = top_k, .top_p = 0.5}};
}

}  // namespace

TEST_CASE("a top_k of fewer tokens than blocks reads few blocks", "[sampling]") {
  at::manual_seed(20);
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t top_k : {1, 2, 31, 50}) {
      // The last block is whole, of one token, or one short.
      for (const int64_t columns : {kBlock * (top_k + 1), kBlock * top_k + 1, kBlock * 60 - 1}) {
        const at::Tensor x = hard_rows(columns, dtype);
        for (const SampleArguments& arguments : rules(top_k)) {
          const CounterDelta bounded("cpu.sample_bounded");
          CHECK(difference(x, arguments) == "");
          CHECK(bounded() == (arguments.temperature > 0 ? 3 * kDrawn : 0));
        }
      }
    }
  }
}

TEST_CASE("a top_k of as many tokens as blocks, and more", "[sampling]") {
  at::manual_seed(20);
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t columns : {1, 2, 63, 64, 65, 1000, 3000}) {
      const at::Tensor x = hard_rows(columns, dtype);
      const int64_t blocks = (columns + kBlock - 1) / kBlock;
      for (const int64_t top_k : {blocks, columns / 2, columns - 1, columns, columns + 1}) {
        for (const SampleArguments& arguments : rules(std::max(blocks, top_k))) {
          const CounterDelta bounded("cpu.sample_bounded");
          CHECK(difference(x, arguments) == "");
          CHECK(bounded() == 0);
        }
      }
    }
  }
}

TEST_CASE("long lists of keys are narrowed by digits, short ones by their keys", "[sampling]") {
  at::manual_seed(20);
  for (const at::ScalarType dtype : kDtypes) {
    for (const double top_p : {0.3, 0.999}) {
      for (const int64_t columns : {kFew, kFew + 1, int64_t{5000}}) {
        const at::Tensor x = hard_rows(columns, dtype);
        const SampleArguments arguments{.seed = 5, .temperature = 3, .top_p = top_p};
        const CounterDelta narrowed("cpu.sample_narrowed");
        CHECK(difference(x, arguments) == "");
        CHECK((narrowed() > 0) == (columns > kFew));
      }
    }
    // Equal keys never become few: all digits are found.
    const CounterDelta narrowed("cpu.sample_narrowed");
    CHECK(difference(at::full({1, 999}, -2.5, dtype), {.top_p = 0.4}) == "");
    CHECK(narrowed() == 3);  // a digit in each of three steps
  }
  // One of a top_k's two lists is long, that of the largest keys of the blocks.
  const at::Tensor x = random_tensor({1, kBlock * kFew + 1}, at::kFloat);
  const CounterDelta bounded("cpu.sample_bounded"), narrowed("cpu.sample_narrowed");
  CHECK(difference(x, {.top_k = 40}) == "");
  CHECK(bounded() == 3);
  CHECK(narrowed() == 3);  // a digit leaves fewer keys than are narrowed
}

TEST_CASE("rows of any stride, drawn by any number of threads", "[sampling]") {
  at::manual_seed(20);
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor wide = hard_rows(5001, dtype);
    for (const int threads : {1, 2, 5, 16}) {
      const Threads limit(threads);
      for (const SampleArguments& arguments : rules(50)) {
        CHECK(difference(wide.narrow(1, 1, 4999), arguments) == "");
      }
      CHECK(difference(wide.narrow(1, 1, 4999), {.top_p = 0.9}) == "");
      CHECK(difference(wide[0].expand({9, 5001}), {.top_k = 50}) == "");
    }
  }
}
