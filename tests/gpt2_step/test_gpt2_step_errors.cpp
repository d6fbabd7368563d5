// Bad input of gpt2_step: what is said about it.

#include "support/devices.h"
#include "support/errors.h"
#include "support/inputs.h"
#include "support/pch.h"
#include "support/step_call.h"

namespace {

void check_step_errors(const at::Device& device) {
  const auto zeros = [&](at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
    return at::zeros(sizes, at::TensorOptions(device).dtype(dtype));
  };
  const StepCall good = random_step({}, at::kFloat, device);
  const auto check = [&](const std::string& expected, const auto& change) {
    StepCall call = good;
    change(call);
    CHECK(error_of([&] { call.run(); }) == "Error: warpfuse::gpt2_step: " + expected);
  };
  check("cache: expected float32, float16 or bfloat16, got Double",
        [&](StepCall& call) { call.cache = call.cache.to(at::kDouble); });
  check("cache: expected [L, 2, B, H, S, D], got [2, 1, 2, 2, 24, 16]",
        [&](StepCall& call) { call.cache = zeros({2, 1, 2, 2, 24, 16}); });
  check("cache: expected heads of at most 128 elements, got 129",
        [&](StepCall& call) { call.cache = zeros({2, 2, 2, 2, 24, 129}); });
  check("cache: expected a last dimension of stride 1, got 24", [](StepCall& call) {
    call.cache = call.cache.transpose(4, 5).contiguous().transpose(4, 5);
  });
  check("ids: expected int64, got Int", [&](StepCall& call) { call.ids = call.ids.to(at::kInt); });
  check("ids: expected [B, 1] with the cache's B = 2, got [2]",
        [&](StepCall& call) { call.ids = zeros({2}, at::kLong); });
  check("positions: expected [B, 1] with the cache's B = 2, got [3, 1]",
        [&](StepCall& call) { call.positions = zeros({3, 1}, at::kLong); });
  check("token_embedding: expected shape [at least 1, 32], got [0, 32]",
        [&](StepCall& call) { call.token_embedding = zeros({0, 32}); });
  check("position_embedding: expected shape [24, 32], got [24, 31]",
        [&](StepCall& call) { call.position_embedding = zeros({24, 31}); });
  check("head: expected Float, got Half",
        [&](StepCall& call) { call.head = call.head.to(at::kHalf); });
  check("norm_weight: expected shape [32], got [16]",
        [&](StepCall& call) { call.norm_weight = zeros({16}); });
  check("norm_bias: expected shape [32], got [32, 1]",
        [&](StepCall& call) { call.norm_bias = zeros({32, 1}); });
  check("layers: expected 24 tensors, 12 for each layer of the cache, got 23",
        [](StepCall& call) { call.layers.pop_back(); });
  check("layers[14]: expected shape [96, 32], got [32, 96]",
        [&](StepCall& call) { call.layers[14] = zeros({32, 96}); });
  check("layers[10]: expected shape [32, 96], got [32, 95]",
        [&](StepCall& call) { call.layers[10] = zeros({32, 95}); });
  check("layers[21]: expected shape [96], got [1]",
        [&](StepCall& call) { call.layers[21] = zeros({1}); });
  check("eps: expected a number not below 0, got -1", [](StepCall& call) { call.eps = -1; });
  check("activation: expected 'none', 'gelu' or 'gelu_tanh', got 'relu'",
        [](StepCall& call) { call.activation = "relu"; });
}

}  // namespace

WARPFUSE_DEVICE_TEST("bad input", "[gpt2_step][errors]") { check_step_errors(device); }

WARPFUSE_DEVICE_TEST("the cache of a step is written in place", "[gpt2_step][errors]") {
  StepCall call = random_step({}, at::kFloat, device);
  CHECK(error_of_backward_after([&] { call.run(); }, call.cache)
            .find("modified by an inplace operation") != std::string::npos);
  const at::Tensor cache = call.cache;
  call.cache = cache.clone().requires_grad_() * 1;
  CHECK(error_of([&] { call.run(); }) ==
        "Error: warpfuse::gpt2_step: cache: expected a tensor that autograd does not follow, such "
        "as cache.detach(), got one that requires a gradient");
  call.cache = cache.narrow(2, 0, 1).expand({-1, -1, 2, -1, -1, -1});
  CHECK(error_of([&] { call.run(); })
            .starts_with("Error: warpfuse::gpt2_step: cache: expected elements that each have "
                         "memory of their own, got strides ["));
}

TEST_CASE("a step that is refused leaves the cache as it was", "[gpt2_step][errors]") {
  const StepCall good = random_step({.vocabulary = 30, .slots = 24}, at::kFloat, at::kCPU);
  const auto check = [&](const std::string& expected, const auto& change) {
    StepCall call = good;
    call.cache = good.cache.clone();
    change(call);
    const auto version = call.cache._version();
    CHECK(error_of([&] { call.run(); }).find(expected) != std::string::npos);
    CHECK(call.cache.nan_to_num(7).equal(good.cache.nan_to_num(7)));
    CHECK(call.cache._version() == version);
  };
  check("index out of range", [](StepCall& call) { call.ids = at::full_like(call.ids, 30); });
  check("index out of range", [](StepCall& call) { call.positions = at::full_like(call.ids, -1); });
  check("positions: expected positions below the cache's 24 slots, got 24", [&](StepCall& call) {
    call.position_embedding = at::cat({good.position_embedding, good.position_embedding});
    call.positions = at::full_like(call.ids, 24);
  });
}

TEST_CASE("gpt2_step on Meta: shapes, and the errors", "[gpt2_step]") {
  StepCall call = random_step({}, at::kFloat, at::kCPU);
  const auto to_meta = [](at::Tensor& x) { x = x.to(at::kMeta); };
  for (at::Tensor* tensor :
       {&call.ids, &call.positions, &call.cache, &call.token_embedding, &call.position_embedding,
        &call.norm_weight, &call.norm_bias, &call.head}) {
    to_meta(*tensor);
  }
  for (at::Tensor& tensor : call.layers) {
    to_meta(tensor);
  }
  const at::Tensor next = call.run();
  CHECK(next.is_meta());
  CHECK(next.sizes() == at::IntArrayRef({2}));
  call.eps = -1;
  CHECK(error_of([&] { call.run(); }).find("eps") != std::string::npos);
}
