// Kernels that may start while the one before them on the stream still runs: calls that depend on
// each other give what they give one by one. Memory that the allocator hands out again holds the
// results of another input, so that a kernel which reads too early is seen.

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDAGuard.h>
#include <rowwise/cuda/device_limits.h>

#include <array>
#include <functional>

#include "support/devices.h"
#include "support/dropout.h"
#include "support/inputs.h"
#include "support/pch.h"
#include "support/row_functions.h"

namespace {

/// A call from a tensor [rows, columns] to one of the same shape.
struct Step {
  std::string name;
  std::function<at::Tensor(const at::Tensor&)> run;
};
using Chain = std::vector<Step>;
using Shape = std::vector<int64_t>;

/// Kernels of every tier, forward and backward, and of ATen, each of which keeps the differences
/// between two inputs large, however many follow each other.
Chain steps(const Shape& shape, const at::Device& device) {
  // Nearly uniform probabilities: a gradient stays as large as it was.
  const at::Tensor logs = at::log_softmax(random_at(0, shape, at::kFloat, device).mul_(0.03), -1);
  const at::Tensor of_columns = at::log_softmax(logs, 0);
  const at::Tensor probabilities = logs.exp();
  const auto columns = static_cast<double>(shape[1]);
  Chain chain;
  for (const std::string& run : runs_of_all_tiers()) {
    const std::string table = tuning_with(run);
    chain.push_back({run, [=](const at::Tensor& x) {
                       const TuningInUse tuning(table);
                       return warpfuse::log_softmax(x, -1);
                     }});
    chain.push_back({run + ", backward", [=](const at::Tensor& x) {
                       const TuningInUse tuning(table);
                       return log_softmax_backward(x, logs, -1);
                     }});
  }
  chain.push_back({"column", [](const at::Tensor& x) { return warpfuse::log_softmax(x, 0); }});
  chain.push_back({"column, backward",
                   [=](const at::Tensor& x) { return log_softmax_backward(x, of_columns, 0); }});
  chain.push_back({"masked, backward", [=](const at::Tensor& x) {
                     return masked_softmax_backward(x, probabilities, {.scale = columns});
                   }});
  chain.push_back({"ATen", [](const at::Tensor& x) { return x.mul(0.75).add_(0.1); }});
  chain.push_back({"ATen, in place", [](const at::Tensor& x) { return x.clone().neg_(); }});
  return chain;
}

/// And those that do not.
Chain all_steps(const Shape& shape, const at::Device& device) {
  Chain chain = steps(shape, device);
  chain.push_back(
      {"naive", [](const at::Tensor& x) { return softmax_algorithm(x, -1, "naive", true); }});
  chain.push_back({"masked", [](const at::Tensor& x) {
                     return masked_softmax(x, {.scale = 2.0, .attn_mask = x});
                   }});
  chain.push_back({"masked, causal", [](const at::Tensor& x) {
                     return masked_softmax(x, {.causal = "lower_right"});
                   }});
  return chain;
}

void synchronize() { at::cuda::getCurrentCUDAStream().synchronize(); }

/// One call, then wait; and again.
at::Tensor run_one_by_one(const Chain& chain, at::Tensor x) {
  for (const Step& step : chain) {
    x = step.run(x);
    synchronize();
  }
  return x;
}

at::Tensor run(const Chain& chain, at::Tensor x) {
  for (const Step& step : chain) {
    x = step.run(x);
  }
  return x;
}

/// All calls are queued before the first starts, so that they follow each other at once.
at::Tensor run_queued(const Chain& chain, const at::Tensor& x) {
  at::cuda::sleep(static_cast<int64_t>(chain.size()) * 1'000'000);  // about 0.5 ms each
  return run(chain, x);
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return at::equal(a.contiguous().view(at::kByte), b.contiguous().view(at::kByte));
}

/// Two inputs in turn, and what a call should make of them.
class Turns {
 public:
  template <typename Call>
  Turns(const at::Tensor& a, const at::Tensor& b, const Call& one_by_one)
      : inputs_({a, b}), expected_({one_by_one(a), one_by_one(b)}) {
    synchronize();
  }

  /// In how many of `repeats` calls the result is another.
  template <typename Call>
  int wrong(int repeats, const Call& call) const {
    int count = 0;
    for (int i = 0; i < repeats; ++i) {
      count += !same_bits(call(inputs_[i % 2]), expected_[i % 2]);
    }
    return count;
  }
  /// The results of the two inputs differ: else no call could go wrong.
  bool tell_apart() const {
    return !same_bits(expected_[0], expected_[1]) && at::isfinite(expected_[0]).all().item<bool>();
  }

 private:
  std::array<at::Tensor, 2> inputs_;
  std::array<at::Tensor, 2> expected_;
};

Turns turns_of(const Chain& chain, const Shape& shape, const at::Device& device) {
  return {random_at(0, shape, at::kFloat, device), random_at(0, shape, at::kFloat, device),
          [&](const at::Tensor& x) { return run_one_by_one(chain, x); }};
}

}  // namespace

WARPFUSE_GPU_TEST("each kernel sees what each other has written before it",
                  "[dependent][portable]") {
  const Shape shape = {300, 3001};
  const Chain all = all_steps(shape, device);
  for (const Step& first : all) {
    for (const Step& second : all) {
      INFO(first.name << ", then " << second.name);
      const Chain chain = {first, second};
      const Turns turns = turns_of(chain, shape, device);
      CHECK(turns.tell_apart());
      CHECK(turns.wrong(4, [&](const at::Tensor& x) { return run_queued(chain, x); }) == 0);
    }
  }
}

WARPFUSE_GPU_TEST("long chains of all kernels", "[dependent][portable]") {
  for (const auto& [shape, repeats] : std::vector<std::pair<Shape, int>>{
           {{12, 64}, 50}, {{12, 1000}, 50}, {{333, 4097}, 20}, {{4096, 8192}, 6}}) {
    Chain chain = steps(shape, device);
    const Chain once = chain;
    chain.insert(chain.end(), once.rbegin(), once.rend());
    INFO(at::IntArrayRef(shape));
    const Turns turns = turns_of(chain, shape, device);
    CHECK(turns.tell_apart());
    CHECK(turns.wrong(repeats, [&](const at::Tensor& x) { return run_queued(chain, x); }) == 0);
  }
}

WARPFUSE_GPU_TEST("a small kernel after a large one that writes its input",
                  "[dependent][portable]") {
  // The second needs few blocks: it would be done before the first, were it not to wait.
  const Shape small = {3, 8192};
  const auto large = [&] { return random_at(0, {64, 8192}, at::kFloat, device).repeat({128, 1}); };
  const at::Tensor a = large(), b = large();
  for (const Step& second : all_steps(small, device)) {
    const auto last_rows = [&](const at::Tensor& x, bool waits) {
      const at::Tensor y = warpfuse::log_softmax(x, -1);
      if (waits) {
        synchronize();
      }
      return second.run(y.narrow(0, y.size(0) - small[0], small[0]));
    };
    INFO(second.name);
    const Turns turns(a, b, [&](const at::Tensor& x) { return last_rows(x, true); });
    CHECK(turns.tell_apart());
    CHECK(turns.wrong(20, [&](const at::Tensor& x) { return last_rows(x, false); }) == 0);
  }
}

WARPFUSE_GPU_TEST("masks and positions that the kernel before has written",
                  "[dependent][portable]") {
  const at::Tensor scores = random_at(0, {2, 3, 50, 300}, at::kFloat, device);
  const auto call = [&](const at::Tensor& logits, bool waits) {
    const auto wait = [&] {
      if (waits) {
        synchronize();
      }
    };
    const at::Tensor mask = warpfuse::log_softmax(logits, -1);
    wait();
    const at::Tensor output = masked_softmax(scores, {.attn_mask = mask});
    wait();
    const at::Tensor visible = output.select(0, 0).select(0, 0) > 1e-4;
    const at::Tensor positions = visible.sum(-1).expand({2, 50}).contiguous();
    wait();
    return masked_softmax(output, {.attn_mask = visible, .query_positions = positions});
  };
  const Turns turns(random_at(0, {50, 300}, at::kFloat, device),
                    random_at(0, {50, 300}, at::kFloat, device),
                    [&](const at::Tensor& x) { return call(x, true); });
  CHECK(turns.tell_apart());
  CHECK(turns.wrong(200, [&](const at::Tensor& x) {
    at::cuda::sleep(1'000'000);
    return call(x, false);
  }) == 0);
}

WARPFUSE_GPU_TEST("calls that draw before the one before them has ended", "[dependent][portable]") {
  // Few rows, each a block's. The second call of each pair takes its numbers from memory that the
  // first one writes, and must wait.
  const Shape shape = {100, 16'384};
  for (const bool softmax_first : {false, true}) {
    const DropoutCall order{.softmax_first = softmax_first};
    const auto call = [&](const at::Tensor& input, bool waits) {
      const auto wait = [&] {
        if (waits) {
          synchronize();
        }
      };
      at::manual_seed(7);
      at::Tensor x = input;
      for (int i = 0; i < 6; ++i) {
        const at::Tensor scores = warpfuse::log_softmax(x, -1);
        wait();
        const auto [drawn, of_drawn, rng] = dropout_softmax(scores, order);
        wait();
        const auto [again, of_again, same_rng] = dropout_softmax(scores, order, rng);
        wait();
        x = input + (drawn - 0.5 * again) * static_cast<double>(shape[1]);
      }
      return x;
    };
    INFO((softmax_first ? "softmax first" : "dropout first"));
    const Turns turns(random_at(0, shape, at::kFloat, device),
                      random_at(0, shape, at::kFloat, device),
                      [&](const at::Tensor& x) { return call(x, true); });
    CounterDelta ahead("draws.ahead");
    CHECK(turns.tell_apart());
    CHECK(turns.wrong(20, [&](const at::Tensor& x) {
      at::cuda::sleep(5'000'000);
      return call(x, false);
    }) == 0);
    // Code for older GPUs, translated, starts nothing early.
    CHECK((ahead() > 0) == warpfuse::cuda::device_limits().dependent_launch);
  }
}

WARPFUSE_GPU_TEST("chains in a CUDA graph", "[dependent][portable]") {
  for (const Shape& shape : std::vector<Shape>{{12, 64}, {70, 1000}, {700, 3001}}) {
    const Chain chain = steps(shape, device);
    const c10::cuda::CUDAStreamGuard guard(at::cuda::getStreamFromPool());
    const at::Tensor x = random_at(0, shape, at::kFloat, device);
    synchronize();
    const Turns turns = turns_of(chain, shape, device);
    at::cuda::CUDAGraph graph;
    graph.capture_begin();
    const at::Tensor output = run(chain, x);
    graph.capture_end();
    INFO(at::IntArrayRef(shape));
    CHECK(turns.tell_apart());
    CHECK(turns.wrong(40, [&](const at::Tensor& input) {
      x.copy_(input);
      graph.replay();
      graph.replay();  // right behind itself
      return output.clone();
    }) == 0);
    synchronize();
  }
}

WARPFUSE_GPU_TEST("chains on four streams at once", "[dependent][portable]") {
  const Shape shape = {70, 1000};
  const Chain chain = steps(shape, device);
  std::vector<at::Tensor> inputs, expected;
  for (int i = 0; i < 4; ++i) {
    inputs.push_back(random_at(0, shape, at::kFloat, device));
    expected.push_back(run_one_by_one(chain, inputs.back()));
  }
  for (int repeat = 0; repeat < 10; ++repeat) {
    std::vector<c10::cuda::CUDAStream> streams;
    std::vector<at::Tensor> outputs;
    for (const at::Tensor& input : inputs) {
      streams.push_back(at::cuda::getStreamFromPool());
      const c10::cuda::CUDAStreamGuard guard(streams.back());
      outputs.push_back(run_queued(chain, input));
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      streams[i].synchronize();
      CHECK(same_bits(outputs[i], expected[i]));
    }
  }
}
