#include "bench/benchmark.h"

#include <ATen/Context.h>

#include <algorithm>
#include <limits>

#include "bench/suites/suites.h"

namespace warpfuse::host::bench {
namespace {

constexpr uint64_t kCheckSeed = 2020;

}  // namespace

int64_t Outputs::bytes() const {
  auto sum = static_cast<int64_t>(result.nbytes());
  for (const at::Tensor& other : others) {
    sum += static_cast<int64_t>(other.nbytes());
  }
  return sum;
}

void Outputs::spoil() const {
  const auto spoil_one = [](const at::Tensor& tensor) {
    tensor.fill_(tensor.is_floating_point() ? at::Scalar(std::numeric_limits<double>::quiet_NaN())
                                            : at::Scalar(std::numeric_limits<int64_t>::min()));
  };
  spoil_one(result);
  std::ranges::for_each(others, spoil_one);
}

std::span<const Benchmark* const> benchmarks() { return kBenchmarks; }

const Benchmark* find_benchmark(std::string_view name) {
  const auto found = std::ranges::find(kBenchmarks, name, &Benchmark::name);
  return found == kBenchmarks.end() ? nullptr : *found;
}

std::vector<std::string> operators_of(const std::vector<Case>& cases) {
  std::vector<std::string> names;
  for (const Case& c : cases) {
    for (const std::string& name : c.op->operators(c)) {
      if (std::ranges::find(names, name) == names.end()) {
        names.push_back(name);
      }
    }
  }
  return names;
}

bool is_refusal(std::string_view message) {
  return message.find("_algorithm: algorithm: expected") != std::string_view::npos;
}

void rewind_generators() { at::manual_seed(kCheckSeed); }

}  // namespace warpfuse::host::bench
