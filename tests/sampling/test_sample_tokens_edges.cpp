// sample_tokens: infinite logits and NaN, empty batches, the ends of its arguments, bad input; the
// example of docs/operators/sampling.md.

#include <warpfuse/sample_tokens.h>

#include "support/devices.h"
#include "support/errors.h"
#include "support/inputs.h"
#include "support/pch.h"
#include "support/sampling.h"

namespace {

const std::vector<SampleArguments> kEveryCut = {
    {},
    {.temperature = 0.0},
    {.top_k = 2},
    {.top_p = 0.8},
    {.min_p = 0.1},
    {.temperature = 0.7, .top_k = 3, .top_p = 0.9, .min_p = 0.01}};

/// What 500 steps draw of a row, sorted.
std::vector<int64_t> seen(const at::Tensor& row, const SampleArguments& arguments) {
  const at::Tensor step = at::arange(500, row.options().dtype(at::kLong));
  const at::Tensor tokens = sample(row.expand({500, row.size(-1)}), step, arguments).cpu();
  const at::Tensor all = std::get<0>(at::_unique(tokens));
  const auto* first = all.const_data_ptr<int64_t>();
  return {first, first + all.numel()};
}

using Tokens = std::vector<int64_t>;

}  // namespace

WARPFUSE_DEVICE_TEST("rows that have no token to draw", "[sampling]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const SampleArguments& arguments : kEveryCut) {
      INFO(c10::toString(dtype) << ", " << describe(arguments));
      CHECK(seen(tensor_of({1, kNaN, 2}, dtype, device), arguments) == Tokens{-1});
      CHECK(seen(tensor_of({1, -kNaN, kInf}, dtype, device), arguments) == Tokens{-1});
      CHECK(seen(tensor_of({-kInf, kNaN}, dtype, device), arguments) == Tokens{-1});
      CHECK(seen(at::full({99}, -kInf, at::TensorOptions(device).dtype(dtype)), arguments) ==
            Tokens{-1});
      // The rows beside them are as they were.
      const at::Tensor x = random_tensor({5, 70}, dtype, device);
      const at::Tensor tokens = sample(x, 0, arguments).cpu();
      x[1][69].fill_(kNaN);
      x[3].fill_(-kInf);
      const at::Tensor with = sample(x, 0, arguments).cpu();
      for (int64_t row = 0; row < 5; ++row) {
        CHECK(with[row].item<int64_t>() == (row % 2 == 1 ? -1 : tokens[row].item<int64_t>()));
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("tokens of -inf are never drawn, and do not count for top_k", "[sampling]") {
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor row = tensor_of({-kInf, 1, -kInf, 1.5, -kInf}, dtype, device);
    CHECK(seen(row, {}) == Tokens{1, 3});
    CHECK(seen(row, {.temperature = 1e300}) == Tokens{1, 3});
    CHECK(seen(row, {.top_k = 4}) == Tokens{1, 3});
    CHECK(seen(row, {.top_k = 1}) == Tokens{3});
    CHECK(seen(row, {.temperature = 0.0}) == Tokens{3});
    CHECK(seen(row, {.top_p = 0.999}) == Tokens{1, 3});
  }
}

WARPFUSE_DEVICE_TEST("of tokens of +inf one is drawn", "[sampling]") {
  for (const at::ScalarType dtype : kDtypes) {
    const double largest = finfo_max(dtype);
    const at::Tensor row = tensor_of({1, kInf, largest, kInf, -kInf, kInf}, dtype, device);
    CHECK(seen(row, {}) == Tokens{1, 3, 5});
    CHECK(seen(row, {.temperature = 1e300, .min_p = 0.5}) == Tokens{1, 3, 5});
    CHECK(seen(row, {.top_k = 1}) == Tokens{1, 3, 5});
    CHECK(seen(row, {.top_p = 0.5}) == Tokens{1, 3});
    CHECK(seen(row, {.temperature = 0.0}) == Tokens{1});
  }
}

WARPFUSE_DEVICE_TEST("the ends of every argument's range", "[sampling]") {
  for (const at::ScalarType dtype : kDtypes) {
    const double largest = finfo_max(dtype);
    const at::Tensor row = tensor_of({2, 0, 2, 1.5, -largest}, dtype, device);
    for (const double tiny : {5e-324, 1e-310, 1e-30}) {
      CHECK(seen(row, {.temperature = tiny}) == Tokens{0, 2});
      CHECK(seen(row, {.top_p = tiny}) == Tokens{0});
      CHECK(seen(row, {.min_p = tiny}) == Tokens{0, 1, 2, 3});
    }
    CHECK(seen(row, {.temperature = 1.7e308}) == Tokens{0, 1, 2, 3, 4});
    CHECK(seen(row, {.temperature = largest, .min_p = 0.9}) == Tokens{0, 1, 2, 3});
    CHECK(seen(row, {.min_p = 1.0}) == Tokens{0, 2});
    CHECK(seen(row, {.top_k = std::numeric_limits<int64_t>::max()}) == Tokens{0, 1, 2, 3});
    CHECK(seen(row, {.top_p = std::nextafter(1.0, 0.0)}) == Tokens{0, 1, 2, 3});
    for (const int64_t seed :
         {std::numeric_limits<int64_t>::min(), int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
      CHECK(seen(row, {.seed = seed}) == Tokens{0, 1, 2, 3});
    }
    // Logits that differ in the last bit of a subnormal number.
    const double least = dtype == at::kHalf     ? std::ldexp(1, -24)
                         : dtype == at::kDouble ? 5e-324
                         : dtype == at::kFloat  ? std::ldexp(1, -149)
                                                : std::ldexp(1, -133);
    const at::Tensor small = tensor_of({0, least, -least, least}, dtype, device);
    CHECK(seen(small, {.temperature = 0.0}) == Tokens{1});
    CHECK(seen(small, {.top_k = 1}) == Tokens{1, 3});
    CHECK(seen(small, {.top_k = 3}) == Tokens{0, 1, 3});
  }
}

WARPFUSE_DEVICE_TEST("subnormal logits are what they say", "[sampling]") {
  for (const auto& [dtype, least] :
       std::vector<std::pair<at::ScalarType, double>>{{at::kHalf, std::ldexp(1, -24)},
                                                      {at::kFloat, std::ldexp(1, -149)},
                                                      {at::kBFloat16, std::ldexp(1, -133)}}) {
    const at::Tensor row = tensor_of({0, least, -least, 2 * least, 3 * least}, dtype, device);
    const SampleArguments arguments{.temperature = least};
    const at::Tensor step = at::arange(3000, row.options().dtype(at::kLong));
    CHECK(frequency_mismatch(sample(row.expand({3000, 5}), step, arguments),
                             expected_tokens(row, arguments)) == "");
  }
}

WARPFUSE_DEVICE_TEST("empty batches, one row, and the longest one", "[sampling]") {
  const auto options = at::TensorOptions(device);
  const at::Tensor none = sample(at::empty({0, 5}, options), 3, {});
  CHECK(none.sizes() == at::IntArrayRef{0});
  CHECK(none.scalar_type() == at::kLong);
  CHECK(sample(at::empty({2, 0, 5}, options), 3, {}).sizes() == at::IntArrayRef({2, 0}));
  const at::Tensor one = sample(at::zeros({7}, options), 3, {});
  CHECK(one.dim() == 0);
  CHECK(one.item<int64_t>() < 7);
  const at::Tensor longest = at::zeros({2, 1 << 20}, options.dtype(at::kHalf));
  longest[1][777'777].fill_(40);
  const at::Tensor tokens = sample(longest, 3, {.top_p = 0.99});
  CHECK(tokens[0].item<int64_t>() >= 0);
  CHECK(tokens[1].item<int64_t>() == 777'777);
}

WARPFUSE_DEVICE_TEST("what is said about bad input", "[sampling][errors]") {
  const auto options = at::TensorOptions(device);
  const auto longs = options.dtype(at::kLong);
  const at::Tensor x = at::zeros({2, 3, 5}, options), step = at::zeros({1}, longs);
  const auto check = [&](const at::Tensor& logits, const at::Tensor& steps,
                         const SampleArguments& arguments, const std::string& expected) {
    CHECK(error_of([&] { sample(logits, steps, arguments); }) ==
          "Error: warpfuse::sample_tokens: " + expected);
    CHECK(sample(x, step, {}).numel() == 6);
  };
  check(x.to(at::kLong), step, {},
        "logits: expected float64, float32, float16 or bfloat16, got Long");
  check(at::zeros({}, options), step, {}, "logits: expected [.., V], got 0 dimensions");
  check(at::zeros({2, 0}, options), step, {},
        "logits: expected at least one column, got shape [2, 0]");
  check(at::zeros({1}, options).expand({1, (1 << 20) + 1}), step, {},
        "logits: expected at most 1048576 columns, got 1048577");
  check(x, at::zeros({1}, options), {}, "step: expected int32 or int64, got Float");
  check(x, at::zeros({5}, longs), {},
        "step: expected one element, or one for each of 6 rows, got 5");
  check(x, at::zeros({0}, longs), {},
        "step: expected one element, or one for each of 6 rows, got 0");
  check(x, step, {.rows = at::zeros({6}, longs.dtype(at::kInt))}, "rows: expected int64, got Int");
  check(x, step, {.rows = at::zeros({1}, longs)},
        "rows: expected one element for each of 6 rows, got 1");
  const at::Device other = device.is_cuda() ? at::kCPU : at::kMeta;
  const std::string places = " expected a tensor on " + device.str() + ", got " + other.str();
  check(x, step.to(other), {}, "step:" + places);
  check(x, step, {.rows = at::zeros({6}, longs.device(other))}, "rows:" + places);
  for (const auto& [value, text] :
       std::vector<std::pair<double, std::string>>{{-0.5, "-0.5"}, {kNaN, "nan"}, {kInf, "inf"}}) {
    check(x, step, {.temperature = value},
          "temperature: expected 0 or a positive, finite number, got " + text);
    check(x, step, {.top_p = value},
          "top_p: expected a probability above 0, at most 1, got " + text);
    check(x, step, {.min_p = value}, "min_p: expected a probability from 0 to 1, got " + text);
  }
  check(x, step, {.top_p = 0.0}, "top_p: expected a probability above 0, at most 1, got 0");
  check(x, step, {.top_p = 1.5}, "top_p: expected a probability above 0, at most 1, got 1.5");
  check(x, step, {.min_p = 1.5}, "min_p: expected a probability from 0 to 1, got 1.5");
  check(x, step, {.top_k = -1}, "top_k: expected 0 or a positive number of tokens, got -1");
}
