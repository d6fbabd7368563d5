// sample_tokens on a GPU: the CPU's tokens from every launch shape, in CUDA graphs, on any stream.

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>

#include "support/captured.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/pch.h"
#include "support/row_engine.h"
#include "support/sampling.h"

namespace {

const std::vector<SampleArguments> kRules = {
    {.seed = 1},
    {.temperature = 0.0},
    {.seed = 2, .temperature = 0.9, .top_k = 50},
    {.seed = 3, .temperature = 0.8, .top_p = 0.95},
    {.seed = 4, .min_p = 0.03},
    {.seed = 5, .temperature = 1.3, .top_k = 300, .top_p = 0.9, .min_p = 0.01},
    {.seed = 6, .temperature = 0.8, .top_k = 50, .top_p = 0.95},
    {.seed = 7, .temperature = 2.0, .top_k = 128, .top_p = 0.8, .min_p = 0.02},
    {.seed = 8, .top_k = 1}};

/// Steps of a call on `logits` in which every row has another one.
at::Tensor steps_of(const at::Tensor& logits) {
  return at::arange(logits.numel() / logits.size(-1), logits.options().dtype(at::kLong)).mul_(3);
}

std::string differing_tokens(const at::Tensor& logits, const SampleArguments& arguments) {
  SampleArguments on_cpu = arguments;
  if (arguments.rows.has_value()) {
    on_cpu.rows = arguments.rows->cpu();
  }
  const at::Tensor got = sample(logits, steps_of(logits), arguments).cpu();
  const at::Tensor expected = sample(logits.cpu(), steps_of(logits.cpu()), on_cpu);
  if (at::equal(got, expected)) {
    return "";
  }
  const auto row = got.ne(expected).nonzero()[0][0].item<int64_t>();
  return c10::str("row ", row, ": ", got[row].item<int64_t>(), " instead of ",
                  expected[row].item<int64_t>());
}

}  // namespace

WARPFUSE_GPU_TEST("thousands of rows have the CPU's tokens", "[sampling][portable]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{
             {2000, 1}, {2000, 2}, {2000, 31}, {3000, 1000}, {1, 4097}, {300, 50'257}}) {
      const at::Tensor x = random_tensor({rows, columns}, dtype, device);
      for (const SampleArguments& arguments : kRules) {
        INFO(describe(x) << ", " << describe(arguments));
        CHECK(differing_tokens(x, arguments) == "");
      }
    }
  }
}

WARPFUSE_GPU_TEST("every size of cluster gives the same tokens", "[sampling][launches][portable]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t columns : {4096, 50'257, 128'256, 1 << 20}) {
      const at::Tensor x = random_tensor({2, columns}, dtype, device);
      for (const SampleArguments& arguments : kRules) {
        for (const int64_t blocks : {1, 2, 4, 8, 16}) {
          const TuningInUse limited(tuning_from(c10::str("cluster_blocks=", blocks)));
          INFO(describe(x) << ", " << describe(arguments) << ", clusters of " << blocks);
          CHECK(differing_tokens(x, arguments) == "");
        }
      }
    }
  }
}

WARPFUSE_GPU_TEST("as many candidates for a small top_k as there is room for, and more",
                  "[sampling][launches][portable]") {
  // The largest logits of a row: `ties` equal ones, all over the row or side by side, and above
  // them 20 others.
  constexpr int64_t kColumns = 50'257;
  const std::vector<SampleArguments> rules = {
      {.seed = 1, .top_k = 50},
      {.seed = 2, .temperature = 3.0, .top_k = 40, .top_p = 0.7},
      {.seed = 3, .top_k = 20, .top_p = 0.95},
      {.seed = 4, .temperature = 2.0, .top_k = 128, .top_p = 0.99, .min_p = 0.01}};
  for (const at::ScalarType dtype : kDtypes) {
    at::Tensor x = random_tensor({18, kColumns}, dtype, at::kCPU).clamp_max_(2);
    int64_t row = 0;
    for (const int64_t ties : {0, 10, 60, 64, 65, 235, 236, 237, 1100}) {
      for (const int64_t step : {1, 43}) {
        x[row].slice(0, 300, 300 + ties * step, step).fill_(3);
        x[row++].slice(0, 20'000, 20'020).copy_(at::linspace(3.5, 5.5, 20));
      }
    }
    x = x.to(device);
    for (const int64_t blocks : {1, 2, 4, 8, 16}) {
      const TuningInUse limited(tuning_from(c10::str("cluster_blocks=", blocks)));
      for (const SampleArguments& arguments : rules) {
        INFO(describe(x) << ", " << describe(arguments) << ", clusters of " << blocks);
        // Few rows at a time, for the largest clusters.
        for (int64_t first = 0; first < x.size(0); first += 6) {
          CHECK(differing_tokens(x.narrow(0, first, 6), arguments) == "");
        }
        CHECK(differing_tokens(std::get<0>(x.narrow(0, 2, 4).sort(1)), arguments) == "");
      }
    }
    for (const double value : {kNaN, -kInf, kInf}) {
      const at::Tensor odd = x.narrow(0, 2, 4).clone();
      odd[1][kColumns - 1].fill_(value);
      odd[2].fill_(value);
      odd[3].slice(0, 30, kColumns).fill_(value);
      for (const SampleArguments& arguments : rules) {
        INFO(describe(x) << ", " << describe(arguments) << ", " << value);
        CHECK(differing_tokens(odd, arguments) == "");
      }
    }
  }
}

WARPFUSE_GPU_TEST("few long rows are clusters', many are blocks'",
                  "[sampling][launches][portable]") {
  const auto launch = [&](int64_t rows, const SampleArguments& arguments) -> nlohmann::json {
    const at::Tensor x = at::zeros({rows, 50'257}, at::TensorOptions(device).dtype(at::kHalf));
    const auto launches = launches_during([&] { sample(x, steps_of(x), arguments); });
    // The steps are launches too, but of ATen's kernels, which are not in the log.
    REQUIRE(launches.size() == 1);
    return launches[0];
  };
  for (const SampleArguments& arguments : kRules) {
    INFO(describe(arguments));
    CHECK(launch(2000, arguments)["tier"] == "block");
    if (row_limits().cluster_blocks > 1) {
      CHECK(launch(1, arguments)["tier"] == "cluster");
    }
    if (arguments.temperature == 0 || (arguments.top_k > 0 && arguments.top_k <= 128)) {
      for (const int64_t rows : {4, 32, 128}) {
        const auto blocks = launch(rows, arguments)["cluster"].get<int64_t>();
        CHECK((blocks == 1 || blocks * rows <= row_limits().multiprocessors));
      }
    }
  }
}

WARPFUSE_GPU_TEST("wide values, equal values and rows that start anywhere",
                  "[sampling][portable]") {
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor flat = random_with_outliers({40 * 5003 + 16}, dtype, device);
    for (int64_t offset = 0; offset < 9; ++offset) {
      const at::Tensor x = flat.narrow(0, offset, int64_t{40} * 5003).view({40, 5003});
      for (const SampleArguments& arguments : kRules) {
        INFO(describe(x) << " at " << offset << ", " << describe(arguments));
        CHECK(differing_tokens(x, arguments) == "");
        CHECK(differing_tokens(x.slice(1, 1, 4000), arguments) == "");
        CHECK(differing_tokens(x.mul(4).round().div(4), arguments) == "");
        CHECK(differing_tokens(at::full_like(x, -2), arguments) == "");
        CHECK(differing_tokens(x.masked_fill(x.lt(1), -kInf), arguments) == "");
      }
    }
  }
}

WARPFUSE_GPU_TEST("a graph whose step advances in it draws on", "[sampling][portable]") {
  const at::Tensor x = random_tensor({3, 50'257}, at::kHalf, device);
  const at::Tensor step = at::zeros({1}, at::TensorOptions(device).dtype(at::kLong));
  for (SampleArguments arguments : kRules) {
    INFO(describe(arguments));
    arguments.rows = at::tensor({9, 4, 7}, at::kLong).to(device);
    const c10::cuda::CUDAStreamGuard guard(at::cuda::getStreamFromPool());
    Captured captured([&] {
      at::Tensor tokens = sample(x, step, arguments);
      step.add_(1);
      return tokens;
    });
    step.fill_(100);
    for (int64_t i = 0; i < 20; ++i) {
      CHECK(at::equal(captured.replay(), sample(x, 100 + i, arguments)));
    }
  }
}

WARPFUSE_GPU_TEST("it waits for its stream, and only that", "[sampling][portable]") {
  const at::Tensor x = at::zeros({2, 50'257}, at::TensorOptions(device).dtype(at::kHalf));
  const at::Tensor step = at::zeros({1}, at::TensorOptions(device).dtype(at::kLong));
  x.select(1, 31'000).fill_(9);
  const at::Tensor tokens = run_late(x, [&] { return sample(x, step, {.temperature = 0.0}); });
  CHECK(tokens.eq(31'000).all().item<bool>());
}
