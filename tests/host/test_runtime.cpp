// The small parts: error texts, cache buckets, differences, plugin versions.

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>
#include <sys/wait.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>

#include "failure_of.h"
#include "fake_language_model.h"
#include "runtime/decode/cuda_runtime.h"
#include "runtime/decode/language_model.h"
#include "runtime/errors.h"
#include "runtime/load/plugin.h"
#include "runtime/score/verification.h"
#include "support/catch.h"

using namespace warpfuse::host;

namespace {

template <typename Exception>
ExitCode code_of(const Exception& exception) {
  return describe(std::make_exception_ptr(exception), ExitCode::model).code;
}

// What `action` fails with in a child process: an exception that passes through dlopen leaves the
// loader's lock held, and the next thread that needs it would wait for ever.
template <typename Action>
std::string failure_in_child(const Action& action) {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::string text;
    try {
      text = failure_of(action);
    } catch (...) {  // must not reach the other test cases
      text = "another exception";
    }
    _exit(::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  std::array<char, 256> buffer{};
  for (ssize_t size = 0; (size = ::read(ends[0], buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<size_t>(size));
  }
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  return text;
}

}  // namespace

TEST_CASE("one line says what went wrong", "[errors]") {
  CHECK(one_line("first\nsecond") == "first");
  CHECK(one_line("\n  indented \nmore") == "indented");
  CHECK(one_line("") == "unknown error");
  CHECK(one_line("The following operation failed in the TorchScript interpreter.\nTraceback of "
                 "TorchScript:\n"
                 "    x = y\nRuntimeError: sizes differ\n and more") == "sizes differ");
}

TEST_CASE("exceptions map to exit codes", "[errors]") {
  CHECK(code_of(std::runtime_error("odd")) == ExitCode::model);
  CHECK(code_of(std::runtime_error("CUDA error: out of memory")) == ExitCode::device);
  CHECK(code_of(Error(ExitCode::plugin, "p")) == ExitCode::plugin);
  CHECK(failure_of([] {
          translating_errors(ExitCode::model, "m", [] { at::empty({int64_t{1} << 62, 1 << 20}); });
        }).starts_with("5: m: out of memory: "));
  const auto expected_dimension = [] { TORCH_CHECK(false, "expected 2 dimensions"); };
  const auto translated = [&] {
    translating_errors(ExitCode::model, "model.pt", expected_dimension);
  };
  CHECK(failure_of(translated) == "3: model.pt: expected 2 dimensions");
}

TEST_CASE("cache buckets are 128 and multiples of 256, up to the context", "[decoder]") {
  CHECK(cache_bucket(1, 1024) == 128);
  CHECK(cache_bucket(128, 1024) == 128);
  CHECK(cache_bucket(129, 1024) == 256);
  CHECK(cache_bucket(257, 1024) == 512);
  CHECK(cache_bucket(513, 1024) == 768);
  CHECK(cache_bucket(1024, 1024) == 1024);
  CHECK(cache_bucket(600, 700) == 700);
  CHECK(cache_bucket(5, 64) == 64);
}

TEST_CASE("a model runs as it was traced, on any thread", "[decoder]") {
  const LanguageModel model = counting_model(4, 4);
  const at::Tensor ids = at::zeros({1, 1}, at::kLong);
  static bool optimised;  // when the model ran an operator last
  optimised = true;
  std::thread([&] {
    const Cache cache = model.make_cache(1, 1);
    at::addThreadLocalCallback(at::RecordFunctionCallback(
        [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> {
          optimised = torch::jit::getGraphExecutorOptimize();
          return nullptr;
        }));
    model.decode(ids, ids, cache);
  }).join();
  CHECK_FALSE(optimised);
}

TEST_CASE("greedy takes the largest logit, the lowest id among equals", "[decoder]") {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(greedy_token(at::tensor({1.0, 3.0, 3.0, 2.0})) == 1);
  CHECK(greedy_token(at::tensor({-infinity, -5.0})) == 1);
  CHECK_FALSE(greedy_token(at::tensor({1.0, nan, 2.0})).has_value());
}

TEST_CASE("differences", "[difference]") {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Difference difference =
      difference_between(at::tensor({1.0, -4.0}), at::tensor({1.5, -4.0}));
  CHECK(difference.largest == 0.5);
  CHECK(difference.relative == 0.125);
  CHECK(difference.within(0.125));
  CHECK_FALSE(difference.within(0.12));
  CHECK(difference_between(at::tensor({-infinity}), at::tensor({-infinity})).largest == 0.0);
  CHECK(difference_between(at::tensor({infinity}), at::tensor({0.0})).largest == infinity);
  CHECK(difference_between(at::tensor({1.0}), at::tensor({1.0, 2.0})).largest == infinity);
  CHECK_FALSE(difference_between(at::tensor({nan}), at::tensor({nan})).within(1e9));
}

TEST_CASE("a NaN stays in the worst of several differences", "[difference]") {
  Difference worst{std::numeric_limits<double>::quiet_NaN(), 1.0};
  worst.include({0.5, 2.0});
  CHECK(std::isnan(worst.largest));
  CHECK(worst.relative == 2.0);
  Difference small{0.5, 2.0};
  small.include({1.0, std::numeric_limits<double>::quiet_NaN()});
  CHECK(small.largest == 1.0);
  CHECK(std::isnan(small.relative));
  small.include({0.0, 0.0});
  CHECK(std::isnan(small.relative));
  CHECK_FALSE(small.within(1e9));
}

TEST_CASE("a difference counts beside what its row holds", "[difference]") {
  // Probabilities of a long row, of which half as much again is still next to nothing.
  const at::Tensor long_row = at::full({2, 60000}, 1.0 / 60000);
  CHECK(std::abs(difference_between(long_row * 1.5, long_row).relative - 0.5) < 1e-5);
  const double half_more = difference_between(at::tensor({100.0, 1.0}).view({2, 1}),
                                              at::tensor({100.0, 1.5}).view({2, 1}))
                               .relative;
  CHECK(std::abs(half_more - 1.0 / 3) < 1e-5);
  // The last digit of half precision where it has no more than one.
  const at::Tensor tiny = at::tensor({6e-8}).to(at::kHalf);
  CHECK(difference_between(tiny * 2, tiny).within(2e-3));
  CHECK_FALSE(difference_between(at::tensor({1e-6}), at::tensor({0.0})).within(1.0));
}

TEST_CASE("the part of a version that binaries depend on", "[plugin]") {
  CHECK(major_minor("2.11.0+cu130") == "2.11");
  CHECK(major_minor("2.11") == "2.11");
  CHECK(running_libtorch().starts_with(major_minor(kBuiltLibtorch)));
}

TEST_CASE("a CUDA module that cannot be opened is an error of the device", "[cuda_runtime]") {
  const auto opening = [](const std::string& path) {
    return failure_in_child([&] { open_cuda_runtime(c10::Device("cuda:0"), path); });
  };
  const std::string module = WARPFUSE_TEST_THROWING_MODULE;
  CHECK(opening(module) == "5: module " + module + ": this library throws");
  CHECK(opening("/nowhere.so") == "5: module /nowhere.so: no such file");
}
