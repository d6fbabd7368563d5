// Bad input of cached_attention_softmax: what is said about it. (Positions past the cache:
// test_cached_attention_edges.cpp.)

#include "support/attention_call.h"
#include "support/autocast.h"
#include "support/devices.h"
#include "support/errors.h"
#include "support/inputs.h"
#include "support/pch.h"

namespace {

template <typename Change>
void check_attention_error(const at::Device& device, const std::string& expected,
                           const Change& change) {
  const auto options = at::TensorOptions(device);
  AttentionCall call{.query = at::zeros({3, 4, 2, 8}, options),
                     .key = at::zeros({3, 2, 2, 8}, options),
                     .value = at::zeros({3, 2, 2, 8}, options),
                     .cache = at::zeros({2, 2, 3, 2, 9, 8}, options),
                     .positions = at::zeros({3, 2}, options.dtype(at::kLong))};
  change(call);
  CHECK(error_of([&] { call.run(); }) == "Error: warpfuse::cached_attention_softmax: " + expected);
}

void check_attention_errors(const at::Device& device) {
  using Call = AttentionCall;
  const auto options = at::TensorOptions(device);
  const auto check = [&](const std::string& expected, const auto& change) {
    check_attention_error(device, expected, change);
  };
  const auto zeros = [&](at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
    return at::zeros(sizes, options.dtype(dtype));
  };
  check("query: expected float64, float32, float16 or bfloat16, got Int",
        [&](Call& call) { call.query = zeros({3, 4, 2, 8}, at::kInt); });
  check("query: expected float32, float16 or bfloat16, got Double",
        [&](Call& call) { call.query = zeros({3, 4, 2, 8}, at::kDouble); });
  check("query: expected [B, H, T, D], got [4, 2, 8]",
        [&](Call& call) { call.query = zeros({4, 2, 8}); });
  check("key: expected Float, got Half",
        [&](Call& call) { call.key = zeros({3, 2, 2, 8}, at::kHalf); });
  check("value: expected Float, got Half",
        [&](Call& call) { call.value = zeros({3, 2, 2, 8}, at::kHalf); });
  check("cache: expected Float, got BFloat16",
        [&](Call& call) { call.cache = zeros({2, 2, 3, 2, 9, 8}, at::kBFloat16); });
  check("key: expected [B, Hkv, T, D], got [3, 2, 8]",
        [&](Call& call) { call.key = zeros({3, 2, 8}); });
  check("key: expected [B, Hkv, T, D] = [3, 2, 2, 8], got [3, 2, 3, 8]",
        [&](Call& call) { call.key = zeros({3, 2, 3, 8}); });
  check("value: expected [B, Hkv, T, D] = [3, 2, 2, 8], got [3, 4, 2, 8]",
        [&](Call& call) { call.value = zeros({3, 4, 2, 8}); });
  check("cache: expected [L, 2, B, Hkv, S, D], got [2, 3, 2, 9, 8]",
        [&](Call& call) { call.cache = zeros({2, 3, 2, 9, 8}); });
  check("cache: expected [L, 2, B, Hkv, S, D] = [2, 2, 3, 2, 9, 8], got [2, 2, 4, 2, 9, 8]",
        [&](Call& call) { call.cache = zeros({2, 2, 4, 2, 9, 8}); });
  check("cache: expected [L, 2, B, Hkv, S, D] = [2, 2, 3, 2, 9, 8], got [2, 1, 3, 2, 9, 8]",
        [&](Call& call) { call.cache = zeros({2, 1, 3, 2, 9, 8}); });
  check("query: expected a multiple of the key's 3 heads, got 4", [&](Call& call) {
    call.key = call.value = zeros({3, 3, 2, 8});
    call.cache = zeros({2, 2, 3, 3, 9, 8});
  });
  check("layer: expected 0 to 1, got 2", [](Call& call) { call.layer = 2; });
  check("layer: expected 0 to 1, got -1", [](Call& call) { call.layer = -1; });
  check("positions: expected int32 or int64, got Float",
        [&](Call& call) { call.positions = zeros({3, 2}); });
  check("positions: expected [B, T] = [3, 2], got [2]",
        [&](Call& call) { call.positions = zeros({2}, at::kLong); });
  check("positions: expected [B, T] = [3, 2], got [3, 1]",
        [&](Call& call) { call.positions = zeros({3, 1}, at::kLong); });
  check("window: expected 0 or a positive number of tokens, got -1",
        [](Call& call) { call.window = -1; });
  const auto long_heads = [&](int64_t size, at::ScalarType dtype) {
    return [=](Call& call) {
      call.query = zeros({3, 4, 2, size}, dtype);
      call.key = call.value = zeros({3, 2, 2, size}, dtype);
      call.cache = zeros({2, 2, 3, 2, 9, size}, dtype);
    };
  };
  check("query: expected heads of at most 128 elements, got 129", long_heads(129, at::kFloat));
  check("query: expected heads of at most 256 elements, got 257", long_heads(257, at::kHalf));
}

}  // namespace

WARPFUSE_DEVICE_TEST("what cached attention says about bad input", "[cached_attention][errors]") {
  check_attention_errors(device);
  check_attention_error(device, "cache: expected a last dimension of stride 1, got 9",
                        [](AttentionCall& call) {
                          call.cache = call.cache.transpose(4, 5).contiguous().transpose(4, 5);
                        });
  check_attention_error(
      device,
      "cache: expected elements that each have memory of their own, got strides "
      "[0, 0, 144, 72, 8, 1]",
      [](AttentionCall& call) {
        call.cache = call.cache.narrow(0, 0, 1).narrow(1, 0, 1).expand({2, 2, -1, -1, -1, -1});
      });
  if (device.is_cuda()) {
    check_attention_error(device, "key: expected a tensor on cuda:0, got cpu",
                          [](AttentionCall& call) { call.key = call.key.cpu(); });
    check_attention_error(device, "cache: expected a tensor on cuda:0, got cpu",
                          [](AttentionCall& call) { call.cache = call.cache.cpu(); });
    check_attention_error(device, "positions: expected a tensor on cuda:0, got cpu",
                          [](AttentionCall& call) { call.positions = call.positions.cpu(); });
    constexpr int64_t kSlots = INT32_MAX - 1023;
    check_attention_error(
        device, "cache: expected at most 2147482623 slots on a GPU, got 2147482624",
        [](AttentionCall& call) {
          call.cache = call.cache.narrow(4, 0, 1).expand({-1, -1, -1, -1, kSlots, -1});
        });
  }
}

WARPFUSE_DEVICE_TEST("a cache that a backward needs may not be written meanwhile",
                     "[cached_attention][errors]") {
  AttentionCall call = random_attention({}, at::kFloat, device);
  CHECK(error_of_backward_after([&] { call.run(); }, call.cache)
            .find("modified by an inplace operation") != std::string::npos);
}

WARPFUSE_DEVICE_TEST("autograd may not follow the cache", "[cached_attention][errors]") {
  AttentionCall call = random_attention({}, at::kFloat, device);
  call.cache = call.cache.requires_grad_() * 1;
  const at::Tensor cache = call.cache;
  const std::string expected =
      "Error: warpfuse::cached_attention_softmax: cache: expected a tensor that autograd does not "
      "follow, such as cache.detach(), got one that requires a gradient";
  CHECK(error_of([&] { call.run(); }) == expected);
  call.cache = cache.narrow(4, 0, 16);
  CHECK(error_of([&] { call.run(); }) == expected);
  const at::NoGradGuard no_grad;
  CHECK(error_of([&] { call.run(); }) == "no error");
}

WARPFUSE_DEVICE_TEST("under autocast the cache's dtype is checked first",
                     "[autocast][cached_attention][errors]") {
  const Autocast autocast(device.type(), at::kBFloat16);
  for (const at::ScalarType dtype : {at::kLong, at::kDouble}) {
    AttentionCall call = random_attention({}, at::kFloat, device);
    call.cache = at::zeros_like(call.cache, dtype);
    CHECK(error_of([&] { call.run(); }) ==
          c10::str("Error: warpfuse::cached_attention_softmax: cache: expected float32, float16 or "
                   "bfloat16, got ",
                   dtype));
  }
}

TEST_CASE("Meta attention is checked as others are", "[cached_attention][errors][meta]") {
  check_attention_errors(at::kMeta);
}
