// cached_attention_softmax against a reference in float64, and the cache bit by bit.

#include "support/attention_call.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/poison.h"
#include "support/threads.h"

WARPFUSE_DEVICE_TEST("one token per sequence", "[cached_attention][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const int64_t head_dim : {1, 33, 40, 64, 80, 128}) {
      for (const int64_t slots : {1, 2, 17, 130, 1100}) {
        for (const int64_t batch : {1, 3}) {
          check_attention(random_attention({.batch = batch, .slots = slots, .head_dim = head_dim},
                                           dtype, device));
        }
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("prompts, from an empty cache and behind a text",
                     "[cached_attention][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const int64_t head_dim : {33, 64, 80}) {
      for (const int64_t tokens : {2, 5, 33}) {
        for (const int64_t before : {0, 1, 100}) {
          check_attention(random_attention(
              {.batch = 2, .tokens = tokens, .slots = tokens + before, .head_dim = head_dim}, dtype,
              device));
        }
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("heads that share keys", "[cached_attention][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const auto& [heads, key_heads] :
         std::vector<std::pair<int64_t, int64_t>>{{12, 4}, {12, 1}, {3, 3}}) {
      for (const int64_t tokens : {1, 5}) {
        check_attention(random_attention({.batch = 2,
                                          .heads = heads,
                                          .key_heads = key_heads,
                                          .tokens = tokens,
                                          .slots = 70,
                                          .head_dim = 64},
                                         dtype, device));
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("a window of the last tokens", "[cached_attention][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const int64_t window : {1, 2, 5, 64, 500, 5000}) {
      for (const int64_t tokens : {1, 5, 33}) {
        AttentionCall call = random_attention(
            {.batch = 2, .tokens = tokens, .slots = 600, .head_dim = 64}, dtype, device, 590);
        call.window = window;
        // Before the window of the first token nothing is read.
        const int64_t hidden = 600 - tokens - window + 1;
        if (hidden > 0) {
          call.cache.select(2, 0).narrow(3, 0, hidden).fill_(kNaN);
        }
        check_attention(call);
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("positions of int32, of any stride and order",
                     "[cached_attention][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const int64_t tokens : {1, 5}) {
      const AttentionCall plain = random_attention(
          {.batch = 3, .tokens = tokens, .slots = 40, .head_dim = 64}, dtype, device);
      AttentionCall call = plain;
      call.positions = plain.positions.to(at::kInt);
      check_attention(call);
      call = plain;
      call.positions = plain.positions.t().contiguous().t();
      check_attention(call);
      call.positions = plain.positions.flip({1});
      check_attention(call);
      call.positions = plain.positions.narrow(0, 2, 1).expand({3, tokens});
      check_attention(call);
    }
  }
}

WARPFUSE_DEVICE_TEST("a cache that is a part of a larger one", "[cached_attention][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const int64_t head_dim : {40, 33}) {
      for (const int64_t tokens : {1, 5}) {
        AttentionCall call = random_attention(
            {.batch = 2, .tokens = tokens, .slots = 24, .head_dim = head_dim}, dtype, device);
        const at::Tensor whole =
            at::full({3, 2, 4, 2, 99, head_dim + 7}, kNaN, call.cache.options());
        const at::Tensor part =
            whole.narrow(0, 1, 2).narrow(2, 1, 2).narrow(4, 10, 24).narrow(5, 1, head_dim);
        call.cache = part.copy_(call.cache);
        const at::Tensor written = expected_cache(call).to(device);
        check_attention(call);
        const at::Tensor expected = at::full_like(whole, kNaN);
        expected.narrow(0, 1, 2)
            .narrow(2, 1, 2)
            .narrow(4, 10, 24)
            .narrow(5, 1, head_dim)
            .copy_(written);
        CHECK(bit_mismatch(whole, expected) == "");
        // [L, 2, B, S, Hkv, D] in memory.
        call.cache = written.transpose(3, 4).contiguous().transpose(3, 4);
        check_attention(call);
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("strides and alignments of queries, keys and values",
                     "[cached_attention][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const int64_t tokens : {1, 5}) {
      const AttentionCall plain = random_attention(
          {.batch = 2, .tokens = tokens, .slots = 24, .head_dim = 64}, dtype, device);
      AttentionCall call = plain;
      call.query = plain.query.contiguous();
      call.key = plain.key.contiguous();
      call.value = plain.value.contiguous();
      check_attention(call);
      call.query = plain.query.permute({3, 0, 1, 2}).contiguous().permute({1, 2, 3, 0});
      call.key = plain.key.permute({3, 0, 1, 2}).contiguous().permute({1, 2, 3, 0});
      check_attention(call);
      for (at::Tensor* tensor : {&call.query, &call.key, &call.value}) {
        const auto options = tensor->options();
        *tensor = at::full({2, 2, tokens, 67}, kNaN, options).narrow(3, 1, 64).copy_(*tensor);
        check_attention(call);
      }
      // Projections of one matrix product: [B, T, 3, H, D].
      const at::Tensor projected = random_tensor({2, tokens, 3, 2, 64}, dtype, device, 1.0);
      call.query = projected.select(2, 0).transpose(1, 2);
      call.key = projected.select(2, 1).transpose(1, 2);
      call.value = projected.select(2, 2).transpose(1, 2);
      check_attention(call);
    }
  }
}

WARPFUSE_DEVICE_TEST("a prompt, then token after token", "[cached_attention][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    const AttentionShape shape{.batch = 2, .heads = 4, .slots = 48, .head_dim = 64};
    AttentionShape prompt = shape;
    prompt.tokens = 40;
    AttentionCall call = random_attention(prompt, dtype, device, 0);
    call.cache.fill_(kNaN);
    call.positions = at::arange(40, call.positions.options()).expand({2, 40});
    check_attention(call);
    call.run();
    for (int64_t position = 40; position < 48; ++position) {
      AttentionCall next = random_attention(shape, dtype, device);
      next.cache = call.cache;
      next.positions = at::full({2, 1}, position, call.positions.options());
      check_attention(next);
    }
  }
}

TEST_CASE("threads share the queries of attention", "[cached_attention]") {
  for (const int count : {1, 3, 16}) {
    const Threads threads(count);
    for (const at::ScalarType dtype : kInferenceDtypes) {
      check_attention(random_attention({.heads = 12, .key_heads = 12, .slots = 300, .head_dim = 64},
                                       dtype, at::kCPU));
      check_attention(random_attention(
          {.batch = 2, .heads = 3, .key_heads = 1, .tokens = 70, .slots = 90, .head_dim = 40},
          dtype, at::kCPU));
    }
  }
}
