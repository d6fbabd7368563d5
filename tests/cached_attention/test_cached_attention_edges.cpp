// cached_attention_softmax: positions outside the cache, infinities and NaN, empty tensors,
// gradients, autocast. (Meta: tests/python/test_operators.py.)

#include "support/attention_call.h"
#include "support/autocast.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/errors.h"
#include "support/inputs.h"
#include "support/operators.h"
#include "support/pch.h"

WARPFUSE_DEVICE_TEST("a negative position sees nothing and writes nothing",
                     "[cached_attention][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const int64_t tokens : {1, 5}) {
      for (const int64_t negative : {int64_t{-1}, int64_t{-7}, int64_t{-1} << 40}) {
        AttentionCall call =
            random_attention({.batch = 2, .tokens = tokens, .slots = 24}, dtype, device);
        call.positions[1][tokens / 2].fill_(negative);
        call.key[1].select(1, tokens / 2).fill_(kNaN);
        const Expected expected = expected_attention(call);
        const at::Tensor cache = expected_cache(call), output = call.run();
        CHECK(output[1].select(1, tokens / 2).eq(0).all().item<bool>());
        CHECK(mismatch(output, expected) == "");
        CHECK(bit_mismatch(call.cache.cpu(), cache) == "");
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("a position past the cache", "[cached_attention][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const int64_t tokens : {1, 5}) {
      for (const int64_t position : {int64_t{24}, int64_t{25}, int64_t{1} << 40}) {
        AttentionCall call =
            random_attention({.batch = 2, .tokens = tokens, .slots = 24}, dtype, device, 0);
        call.positions[1][tokens - 1].fill_(position);
        const at::Tensor before = call.cache.clone(), written = expected_cache(call);
        const auto version = call.cache._version();
        if (!device.is_cuda()) {
          CHECK(error_of([&] { call.run(); }) ==
                c10::str("Error: warpfuse::cached_attention_softmax: positions: expected positions "
                         "below the cache's 24 slots, got ",
                         position));
          CHECK(bit_mismatch(call.cache, before) == "");
          CHECK(call.cache._version() == version);
          continue;
        }
        call.cache[1].select(1, 1).select(2, 23).fill_(0.5);  // a slot that all see
        const at::Tensor all = expected_cache(call);
        const Expected expected = expected_attention(call);
        const at::Tensor output = call.run();
        CHECK(mismatch(output, expected) == "");
        CHECK(bit_mismatch(call.cache.cpu(), all) == "");
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("of several tokens at a slot the last one is written",
                     "[cached_attention][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const at::ScalarType index : {at::kLong, at::kInt}) {
      for (const int64_t head_dim : {8, 121, 128}) {
        AttentionCall call = random_attention({.batch = 16,
                                               .heads = 8,
                                               .key_heads = 8,
                                               .tokens = 15,
                                               .slots = 24,
                                               .head_dim = head_dim},
                                              dtype, device, 0);
        call.positions.slice(1, 0, 15, 2).fill_(20);  // that of token 11
        call.positions = call.positions.to(index);
        check_attention(call);
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("position 0 has its own value", "[cached_attention][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    AttentionCall call = random_attention({.batch = 2, .slots = 24, .head_dim = 64}, dtype, device);
    call.cache.fill_(kNaN);
    call.positions.zero_();
    CHECK(bit_mismatch(call.run().contiguous(), call.value.contiguous()) == "");
  }
}

WARPFUSE_DEVICE_TEST("NaN and infinities that a query sees", "[cached_attention][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const int64_t tokens : {1, 5}) {
      const AttentionCall plain = random_attention(
          {.batch = 2, .tokens = tokens, .slots = 24, .head_dim = 64}, dtype, device);
      const auto with = [&](int64_t of_two, double value) {
        AttentionCall call = plain;
        call.cache = plain.cache.clone();
        call.cache[1][of_two][0][1][3][5].fill_(value);
        return call.run();
      };
      AttentionCall clean = plain;
      clean.cache = plain.cache.clone();
      const at::Tensor before = clean.run();
      const at::Tensor keys = with(0, kNaN), values = with(1, kNaN), infinite = with(1, kInf);
      CHECK(at::isnan(keys[0][1]).all().item<bool>());
      CHECK(at::isnan(values[0][1].select(-1, 5)).all().item<bool>());
      CHECK(infinite[0][1].select(-1, 5).eq(kInf).all().item<bool>());
      for (const at::Tensor& output : {keys, values, infinite}) {
        CHECK(at::equal(output[0][0], before[0][0]));
        CHECK(at::equal(output[1], before[1]));
      }
      CHECK(at::equal(values[0][1].narrow(-1, 6, 58), before[0][1].narrow(-1, 6, 58)));
    }
  }
}

WARPFUSE_DEVICE_TEST("scores far apart, and scales of any sign", "[cached_attention][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const double scale : {-1.0, 0.0, 1e-30, 30.0}) {
      for (const auto& [tokens, head_dim] :
           std::vector<std::pair<int64_t, int64_t>>{{1, 64}, {5, 64}, {70, 24}}) {
        AttentionCall call = random_attention(
            {.batch = 2, .tokens = tokens, .slots = 200, .head_dim = head_dim}, dtype, device);
        call.scale = scale;
        check_attention(call);
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("attention of nothing", "[cached_attention]") {
  for (const AttentionShape& shape :
       {AttentionShape{.batch = 0}, AttentionShape{.tokens = 0}, AttentionShape{.head_dim = 0}}) {
    const auto options = at::TensorOptions(device);
    AttentionCall call{
        .query = at::zeros({shape.batch, 2, shape.tokens, shape.head_dim}, options),
        .key = at::zeros({shape.batch, 2, shape.tokens, shape.head_dim}, options),
        .value = at::zeros({shape.batch, 2, shape.tokens, shape.head_dim}, options),
        .cache = at::zeros({2, 2, shape.batch, 2, 5, shape.head_dim}, options),
        .positions = at::zeros({shape.batch, shape.tokens}, options.dtype(at::kLong))};
    CHECK(call.run().sizes() == call.query.sizes());
  }
}

WARPFUSE_DEVICE_TEST("attention for inference is counted and has no gradient",
                     "[cached_attention]") {
  const CounterDelta calls("cached_attention_softmax." + backend_name(device));
  AttentionCall call = random_attention({}, at::kFloat, device);
  call.query = call.query.contiguous().set_requires_grad(true);
  const at::Tensor output = call.run();
  const std::string error = error_of([&] { output.sum().backward(); });
  INFO(error);
  CHECK(error.find("warpfuse::cached_attention_softmax") != std::string::npos);
  CHECK(calls() == 1);
}

WARPFUSE_DEVICE_TEST("under autocast queries, keys and values take the cache's dtype",
                     "[autocast][cached_attention]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    const AttentionCall call =
        random_attention({.batch = 2, .tokens = 3, .slots = 24}, dtype, device);
    AttentionCall before = call, mixed = call;
    before.cache = call.cache.clone();
    mixed.cache = call.cache.clone();
    const at::Tensor expected = before.run();
    mixed.query = call.query.to(at::kFloat);
    mixed.key = call.key.to(at::kFloat);
    if (dtype != at::kFloat) {
      CHECK(error_of([&] { mixed.run(); }).find("value: expected") != std::string::npos);
    }
    const Autocast autocast(device.type(), at::kBFloat16);
    const at::Tensor output = mixed.run();
    CHECK(output.scalar_type() == dtype);
    CHECK(output.equal(expected));
    CHECK(mixed.cache.nan_to_num().equal(before.cache.nan_to_num()));
  }
}
