// sample_tokens: what it draws, and how often; what the draws depend on.

#include <warpfuse/sample_tokens.h>

#include "support/compare.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/poison.h"
#include "support/sampling.h"

namespace {

at::Tensor steps_on(const at::Device& device, int64_t count, int64_t first = 0) {
  return at::arange(first, first + count, at::TensorOptions(device).dtype(at::kLong));
}

/// `count` draws of one row.
at::Tensor draws(const at::Tensor& row, int64_t count, const SampleArguments& arguments) {
  return sample(row.expand({count, row.size(-1)}), steps_on(row.device(), count), arguments);
}

std::vector<SampleArguments> cuts() {
  return {{},
          {.seed = -1, .temperature = 0.0, .top_k = 3},
          {.seed = 1, .temperature = 0.3},
          {.seed = 2, .temperature = 2.5},
          {.seed = 3, .top_k = 1},
          {.seed = 4, .top_k = 20},
          {.seed = 5, .top_k = 1'000'000},
          {.seed = 6, .top_p = 0.9},
          {.seed = 7, .top_p = 0.05},
          {.seed = 8, .temperature = 5.0, .top_p = 0.999},
          {.seed = 9, .min_p = 0.05},
          {.seed = 10, .min_p = 1.0},
          {.seed = int64_t{1} << 62, .temperature = 0.8, .top_k = 40, .top_p = 0.9, .min_p = 0.02},
          {.seed = 12, .temperature = 100.0, .top_k = 25, .top_p = 0.7}};
}

/// 0, 1, 2 .. of pseudo-random logits that no generator has a part in.
at::Tensor fixed_logits(int64_t rows, int64_t columns) {
  const at::Tensor i = at::arange(rows * columns, at::kLong);
  return (i * 48271)
      .remainder(1'000'003)
      .mul(7919)
      .remainder(65'537)
      .to(at::kDouble)
      .div(4096)
      .view({rows, columns});
}

}  // namespace

WARPFUSE_DEVICE_TEST("tokens come as often as the cut softmax says", "[sampling][portable]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t columns : {1, 2, 31, 33, 1000, 50'257}) {
      const bool large = columns > 1000;
      if (large && dtype != at::kHalf && dtype != at::kFloat) {
        continue;
      }
      const at::Tensor row = random_tensor({columns}, dtype, device, large ? 2.0 : 1.0);
      for (const SampleArguments& arguments : cuts()) {
        INFO(describe(row) << ", " << describe(arguments));
        const int64_t count = large ? 200 : columns > 33 ? 5000 : 3000;
        const Poison poison;
        CHECK(frequency_mismatch(draws(row, count, arguments), expected_tokens(row, arguments)) ==
              "");
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("what is kept is exactly what the cuts leave", "[sampling][portable]") {
  // A high temperature makes all that are kept come soon.
  for (const at::ScalarType dtype : {at::kDouble, at::kHalf}) {
    const at::Tensor row = random_tensor({200}, dtype, device);
    for (SampleArguments arguments : cuts()) {
      if (arguments.temperature == 0) {
        continue;
      }
      arguments.temperature = 50;
      INFO(describe(row) << ", " << describe(arguments));
      const ExpectedTokens expected = expected_tokens(row, arguments);
      const auto kept = std::ranges::count_if(expected.probability, [](double p) { return p > 0; });
      const at::Tensor seen = std::get<0>(at::_unique(draws(row, 80 * kept, arguments).cpu()));
      CHECK((expected.any_doubt || seen.numel() == kept));
      CHECK(frequency_mismatch(draws(row, 80 * kept, arguments), expected) == "");
    }
  }
}

WARPFUSE_DEVICE_TEST("equal logits: top_k keeps all ties, top_p the first of them",
                     "[sampling][portable]") {
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor row = tensor_of({1, 2, 2, 1, 2, 2, 1, -0.0, 0.0, 3}, dtype, device);
    const auto seen = [&](const SampleArguments& arguments) {
      const at::Tensor all = std::get<0>(at::_unique(draws(row, 4000, arguments).cpu()));
      const auto* first = all.const_data_ptr<int64_t>();
      return std::vector<int64_t>(first, first + all.numel());
    };
    CHECK(seen({.top_k = 3}) == std::vector<int64_t>{1, 2, 4, 5, 9});
    CHECK(seen({.temperature = 9, .top_k = 9}) ==
          std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
    // p(3) = 0.306, p(2) = 0.113: what is left out, 0.5 at most, are two of the four ties and more.
    CHECK(seen({.top_p = 0.5}) == std::vector<int64_t>{1, 2, 9});
    const at::Tensor even = at::zeros({8}, row.options());
    const auto half = draws(even, 2000, {.top_p = 0.5}).cpu();
    CHECK(half.max().item<int64_t>() == 3);
    CHECK(half.min().item<int64_t>() == 0);
  }
}

WARPFUSE_DEVICE_TEST("greedy is the first of the largest", "[sampling][portable]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t columns : {1, 7, 64, 1025, 50'257}) {
      const at::Tensor x = random_tensor({5, columns}, dtype, device);
      x[1].fill_(-3);
      x[2].fill_(-0.0);
      x[2][columns - 1].fill_(0.0);
      const at::Tensor values = x.cpu().to(at::kDouble);
      const at::Tensor tokens = sample(x, 0, {.temperature = 0.0, .top_k = 5}).cpu();
      for (int64_t row = 0; row < x.size(0); ++row) {
        const auto* first = values[row].const_data_ptr<double>();
        INFO(describe(x) << ", row " << row);
        CHECK(tokens[row].item<int64_t>() == std::max_element(first, first + columns) - first);
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("a row's token depends on its logits, name and step alone",
                     "[sampling][portable]") {
  const at::Tensor x = random_tensor({40, 777}, at::kHalf, device);
  const SampleArguments plain{.seed = 3, .top_p = 0.95};
  const at::Tensor tokens = sample(x, 6, plain);
  // In another slot, under its own name.
  const at::Tensor order = at::randperm(40, at::TensorOptions(at::kLong)).to(device);
  SampleArguments named = plain;
  named.rows = order;
  CHECK(at::equal(sample(x.index_select(0, order), 6, named), tokens.index_select(0, order)));
  // Alone.
  for (const int64_t row : {0, 17, 39}) {
    named.rows = at::full({1}, row, order.options());
    CHECK(at::equal(sample(x.narrow(0, row, 1), 6, named), tokens.narrow(0, row, 1)));
  }
  // One step for all, or one for each; as int32 too.
  const at::Tensor each = at::full({40}, 6, order.options());
  CHECK(at::equal(sample(x, each, plain), tokens));
  CHECK(at::equal(sample(x, each.to(at::kInt), plain), tokens));
  CHECK(at::equal(sample(x, each.to(at::kInt).narrow(0, 0, 1), plain), tokens));
  const at::Tensor own_steps = steps_on(device, 40, 100);
  const at::Tensor at_own_steps = sample(x, own_steps, plain);
  for (const int64_t row : {0, 17, 39}) {
    CHECK(at::equal(at_own_steps[row], sample(x, 100 + row, plain)[row]));
  }
  CHECK(!at::equal(at_own_steps, sample(x, 100, plain)));
  // Other names, steps and seeds draw others.
  SampleArguments other = plain;
  other.seed = 4;
  named.rows = order + 40;
  CHECK(!at::equal(sample(x, 7, plain), tokens));
  CHECK(!at::equal(sample(x, 6, other), tokens));
  CHECK(!at::equal(sample(x, 6, named), tokens));
}

WARPFUSE_DEVICE_TEST("logits of any layout", "[sampling][portable]") {
  const SampleArguments arguments{.seed = 9, .top_k = 50, .top_p = 0.9};
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor wide = random_tensor({2, 3, 5, 131}, dtype, device);
    const auto check = [&](const at::Tensor& logits) {
      INFO(describe(logits));
      const at::Tensor dense = logits.clone(at::MemoryFormat::Contiguous);
      const at::Tensor tokens = sample(logits, 2, arguments);
      CHECK(at::equal(tokens, sample(dense, 2, arguments)));
      CHECK(tokens.sizes() == logits.sizes().slice(0, logits.dim() - 1));
      CHECK(tokens.is_contiguous());
    };
    check(wide);
    check(wide.narrow(3, 1, 97));
    check(wide.select(2, 4));
    check(wide.slice(2, 0, 5, 2).narrow(3, 3, 100));
    check(wide.transpose(0, 1));
    check(wide.transpose(2, 3));
    check(wide.slice(3, 0, 131, 2));
    check(wide[0][0][0]);
    check(wide[0][0][0].expand({4, 131}));
    for (int64_t offset = 0; offset < 9; ++offset) {
      check(wide.view({-1}).narrow(0, offset, int64_t{2} * 131).view({2, 131}));
      check(wide.view({-1}).narrow(0, offset, 7).view({1, 7}));
    }
  }
}

WARPFUSE_DEVICE_TEST("the tokens of these logits, for ever", "[sampling][portable]") {
  // One number of all tokens: every instruction set and GPU, and every later version, gives it.
  const auto checksum = [](const at::Tensor& tokens) {
    const at::Tensor flat = tokens.cpu().view(-1);
    return (flat * (at::arange(flat.numel(), at::kLong) + 1)).sum().item<int64_t>();
  };
  const at::Tensor x = fixed_logits(300, 1009);
  const SampleArguments arguments{
      .seed = 20, .temperature = 0.7, .top_k = 200, .top_p = 0.95, .min_p = 0.001};
  const at::Tensor step = at::full({1}, 5, at::TensorOptions(device).dtype(at::kLong));
  CHECK(checksum(sample(x.to(device), step, {.seed = 20})) == 23'466'711);
  CHECK(checksum(sample(x.to(device), step, arguments)) == 23'409'852);
  CHECK(checksum(sample(x.to(device, at::kFloat), step, arguments)) == 23'409'852);
  CHECK(checksum(sample(x.to(device, at::kHalf), step, arguments)) == 23'409'852);
  CHECK(checksum(sample(x.to(device, at::kBFloat16), step, arguments)) == 23'274'122);
}

WARPFUSE_DEVICE_TEST("each call is counted, and has no gradient", "[sampling][portable]") {
  const CounterDelta calls("sample_tokens." + backend_name(device));
  const at::Tensor x = random_tensor({3, 5}, at::kFloat, device).set_requires_grad(true);
  CHECK(!sample(x, 0, {}).requires_grad());
  CHECK(calls() == 1);
}
