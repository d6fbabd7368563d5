// cached_attention_softmax on a GPU: its launches, CUDA graphs whose positions advance in them,
// streams.

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDAGuard.h>

#include "support/attention_call.h"
#include "support/captured.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/row_engine.h"

WARPFUSE_GPU_TEST("one token is one kernel, a prompt two",
                  "[cached_attention][launches][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const int64_t tokens : {1, 5}) {
      const CounterDelta attended("tier.span"), written("tier.elements");
      AttentionCall call = random_attention(
          {.heads = 12, .key_heads = 12, .tokens = tokens, .slots = 1100, .head_dim = 64}, dtype,
          device);
      const auto launches = launches_during([&] { call.run(); });
      CHECK(launches.size() == (tokens == 1 ? 1 : 2));
      CHECK(attended() == 1);
      CHECK(written() == (tokens == 1 ? 0 : 1));
    }
  }
}

WARPFUSE_GPU_TEST("as many warps per query as have two iterations",
                  "[cached_attention][launches][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const int64_t slots : {1, 31, 32, 63, 64, 65, 127, 128, 129, 255, 256, 300, 2000}) {
      for (const int64_t window : {0, 50}) {
        AttentionCall call = random_attention(
            {.batch = 5, .heads = 16, .key_heads = 8, .slots = slots, .head_dim = 40}, dtype,
            device);
        call.window = window;
        const auto launches = launches_during([&] { check_attention(call); });
        // Heads of 40 elements take 8 lanes in half precision and 16 in float32.
        const int64_t iteration = dtype == at::kFloat ? 8 : 16;
        const int64_t seen = window > 0 ? std::min(window, slots) : slots;
        int64_t warps = 8;
        while (warps > 1 && 2 * warps * iteration > seen) {
          warps /= 2;
        }
        if (16 * iteration < seen && row_limits().cluster_blocks > 1) {
          warps = 4;  // of each block of a cluster
        }
        CHECK(launches[0]["threads"] == warps * 32);
      }
    }
  }
}

WARPFUSE_GPU_TEST("every size of cluster attends alike", "[cached_attention][launches][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const int64_t blocks : {1, 2, 4, 8}) {
      const TuningInUse limited(tuning_from(c10::str("cluster_blocks=", blocks)));
      for (const int64_t slots : {1, 100, 1100, 5000}) {
        AttentionCall call = random_attention(
            {.batch = 2, .heads = 3, .key_heads = 1, .slots = slots, .head_dim = 64}, dtype,
            device);
        INFO(describe(call) << ", clusters of " << blocks);
        const Expected expected = expected_attention(call);
        CHECK(mismatch(call.run(), expected) == "");
      }
    }
  }
}

WARPFUSE_GPU_TEST("a graph whose positions advance in it writes slot after slot",
                  "[cached_attention][portable]") {
  const c10::cuda::CUDAStreamGuard guard(at::cuda::getStreamFromPool());
  for (const at::ScalarType dtype : kInferenceDtypes) {
    AttentionCall call =
        random_attention({.batch = 2, .heads = 4, .slots = 300, .head_dim = 64}, dtype, device, 0);
    Captured captured([&] {
      at::Tensor output = call.run();
      call.positions.add_(1);
      return output;
    });
    call.cache.fill_(kNaN);
    call.positions.zero_();
    for (int64_t step = 0; step < 300; ++step) {
      call.query.copy_(random_tensor(call.query.sizes(), dtype, device));
      call.key.copy_(random_tensor(call.key.sizes(), dtype, device, 1.0));
      call.value.copy_(random_tensor(call.value.sizes(), dtype, device));
      AttentionCall eager = call;
      eager.positions = call.positions.clone();
      eager.cache = call.cache.clone();
      const at::Tensor expected = eager.run();
      CHECK(bit_mismatch(captured.replay(), expected) == "");
      CHECK(bit_mismatch(call.cache, eager.cache) == "");
    }
    CHECK(at::isfinite(call.cache[1]).all().item<bool>());
  }
}

WARPFUSE_GPU_TEST("calls on one cache follow each other", "[cached_attention][prompt][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const AttentionShape& shape :
         {AttentionShape{.heads = 12, .key_heads = 12, .tokens = 1, .slots = 900, .head_dim = 64},
          AttentionShape{.heads = 12, .key_heads = 12, .tokens = 5, .slots = 900, .head_dim = 64},
          AttentionShape{.batch = 2, .tokens = 200, .slots = 300, .head_dim = 64}}) {
      AttentionCall first = random_attention(shape, dtype, device);
      AttentionCall second = first;  // writes the same slots with other values
      second.value = first.value.neg();
      AttentionShape of_next = shape;
      of_next.tokens = 1;
      AttentionCall next = random_attention(of_next, dtype, device);
      next.cache = expected_cache(second);
      const Expected expected = expected_attention(second), after = expected_attention(next);
      next.cache = first.cache;
      const at::Tensor cache = first.cache.clone();
      for (int repeat = 0; repeat < 20; ++repeat) {
        first.cache.copy_(cache);
        at::cuda::getCurrentCUDAStream().synchronize();
        at::cuda::sleep(1'000'000);
        first.run();
        const at::Tensor output = second.run(), token = next.run();
        CHECK(mismatch(output, expected) == "");
        CHECK(mismatch(token, after) == "");
      }
    }
  }
}

WARPFUSE_GPU_TEST("attention waits for its stream, and only that", "[cached_attention][portable]") {
  AttentionCall call = random_attention({.slots = 500, .head_dim = 64}, at::kHalf, device);
  const Expected expected = expected_attention(call);
  CHECK(mismatch(run_late(call.positions, [&] { return call.run(); }), expected) == "");
}
