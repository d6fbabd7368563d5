// cached_attention_softmax of prompts, which a GPU computes by tiles of queries and slots: sizes
// around those of the tiles, rows of a batch at different positions, positions in any order.

#include "support/attention_call.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/poison.h"
#include "support/row_engine.h"

namespace {

AttentionCall prompt_of(const at::ScalarType dtype, const at::Device& device, int64_t tokens,
                        int64_t slots, int64_t apart = 3, int64_t head_dim = 64) {
  return random_attention({.batch = 2, .tokens = tokens, .slots = slots, .head_dim = head_dim},
                          dtype, device, apart);
}

}  // namespace

WARPFUSE_DEVICE_TEST("prompts around the sizes of tiles", "[cached_attention][prompt][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const int64_t tokens : {16, 63, 65, 128, 200}) {
      for (const int64_t before : {0, 1, 100}) {
        check_attention(prompt_of(dtype, device, tokens, tokens + before));
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("prompts of heads of any size", "[cached_attention][prompt][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const int64_t head_dim : {8, 33, 40, 80, 128, dtype == at::kFloat ? 128 : 256}) {
      for (const int64_t key_heads : {1, 3}) {
        check_attention(random_attention({.batch = 2,
                                          .heads = 3,
                                          .key_heads = key_heads,
                                          .tokens = 70,
                                          .slots = 150,
                                          .head_dim = head_dim},
                                         dtype, device));
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("prompts of different lengths behind texts of different lengths",
                     "[cached_attention][prompt][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const bool padded_left : {false, true}) {
      AttentionCall call = random_attention(
          {.batch = 4, .heads = 4, .tokens = 140, .slots = 300, .head_dim = 64}, dtype, device, 47);
      // Rows of 140, 103, 20 tokens and none; what has no position is NaN.
      const std::vector<int64_t> absent = {0, 37, 120, 140};
      for (int64_t row = 0; row < 4; ++row) {
        const int64_t first = padded_left ? 0 : 140 - absent[row];
        call.positions[row].narrow(0, first, absent[row]).fill_(-1);
        for (const at::Tensor& tensor : {call.query, call.key, call.value}) {
          tensor[row].narrow(1, first, absent[row]).fill_(kNaN);
        }
        if (!padded_left) {  // nothing else has been there
          call.cache.select(2, row)
              .narrow(3, 300 - 47 * row - absent[row], 47 * row + absent[row])
              .fill_(kNaN);
        }
      }
      check_attention(call);
    }
  }
}

WARPFUSE_DEVICE_TEST("prompts with a window", "[cached_attention][prompt][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const int64_t window : {1, 5, 64, 100, 5000}) {
      AttentionCall call = prompt_of(dtype, device, 150, 400, 3, 24);
      call.window = window;
      const int64_t hidden = 400 - 3 - 150 - window + 1;
      if (hidden > 0) {
        call.cache.select(2, 0).narrow(3, 0, hidden).fill_(kNaN);
      }
      check_attention(call);
    }
  }
}

// Tiles are computed from the newest slots to the oldest ones.
WARPFUSE_DEVICE_TEST("scores of a prompt that rise towards old slots",
                     "[cached_attention][prompt][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const double rise : {0.02, 0.1}) {  // per slot: 0.1 is a factor of 2^9 per tile
      AttentionCall call = prompt_of(dtype, device, 300, 320);
      call.query.select(-1, 0).fill_(1.0);
      const auto set = [&](const at::Tensor& keys, int64_t first) {
        const at::Tensor slots = at::arange(first, first + keys.size(-2), keys.options());
        keys.select(-1, 0).copy_((slots - 320) * (-rise / call.scale));
      };
      set(call.key, 17);  // rows of the batch begin at slots 17 and 20
      set(call.cache.select(1, 0), 0);
      check_attention(call);
    }
  }
}

WARPFUSE_DEVICE_TEST("a query of a prompt that sees -inf in its newest tile",
                     "[cached_attention][prompt][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    if (dtype == at::kFloat && device.is_cuda()) {
      continue;  // NaN: the products of an infinity's parts
    }
    AttentionCall call = prompt_of(dtype, device, 200, 203);
    call.query.select(-1, 0).fill_(1.0);
    for (const int64_t token : {64, 128}) {  // the only ones that their own queries see there
      call.key.select(2, token).select(-1, 0).fill_(-std::numeric_limits<double>::infinity());
    }
    check_attention(call);
  }
}

WARPFUSE_DEVICE_TEST("positions of a prompt in any order", "[cached_attention][prompt][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const int64_t window : {0, 7, 90}) {
      const AttentionCall plain = prompt_of(dtype, device, 130, 320, 3, 16);
      const auto with = [&](const at::Tensor& positions) {
        AttentionCall call = plain;
        call.window = window;
        call.positions = positions;
        // Slots that nobody sees, also between those of two tokens.
        const at::Tensor slot = at::arange(320, positions.options().dtype(at::kLong));
        const at::Tensor at = positions.to(at::kLong).unsqueeze(-1);  // [B, T, 1]
        at::Tensor seen = slot.le(at);
        if (window > 0) {
          seen = seen.logical_and(slot.gt(at - window));
        }
        const at::Tensor hidden = seen.any(1).logical_not().view({2, 1, 320, 1});
        call.cache =
            random_tensor(plain.cache.sizes(), dtype, device, 1.0).masked_fill(hidden, kNaN);
        check_attention(call);
      };
      with(plain.positions.flip({1}));
      with(plain.positions.to(at::kInt).t().contiguous().t());
      const auto longs = plain.positions.options();
      with(at::randperm(320, longs).narrow(0, 0, 260).view({2, 130}));
      with((at::arange(130, longs) * 2).expand({2, 130}));
      at::Tensor holes = plain.positions.clone();  // tokens in the middle have no position
      holes.narrow(1, 50, 3).fill_(-1);
      with(holes);
      at::Tensor twice = plain.positions.clone();  // the later token counts
      twice.select(1, 3).copy_(plain.positions.select(1, 100));
      with(twice);
    }
  }
}

WARPFUSE_DEVICE_TEST("a prompt by pieces is the whole prompt",
                     "[cached_attention][prompt][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    AttentionCall whole = prompt_of(dtype, device, 300, 300, 0);
    whole.cache.fill_(kNaN);
    AttentionCall piece = whole;
    piece.cache = whole.cache.clone();
    check_attention(whole);
    const at::Tensor output = whole.run();
    for (int64_t first = 0; first < 300; first += 128) {
      const int64_t count = std::min<int64_t>(128, 300 - first);
      const auto part = [&](const at::Tensor& tensor, int64_t dim) {
        return tensor.narrow(dim, first, count);
      };
      piece.query = part(whole.query, 2);
      piece.key = part(whole.key, 2);
      piece.value = part(whole.value, 2);
      piece.positions = part(whole.positions, 1);
      check_attention(piece);
      CHECK(aten_mismatch(piece.run(), part(output, 2)) == "");
    }
    CHECK(bit_mismatch(piece.cache, whole.cache) == "");
  }
}

WARPFUSE_DEVICE_TEST("a prompt in a bucket of a cache", "[cached_attention][prompt][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    AttentionCall call = prompt_of(dtype, device, 90, 128);
    const at::Tensor whole = at::full({3, 2, 4, 2, 512, 64}, kNaN, call.cache.options());
    const at::Tensor part = whole.narrow(0, 1, 2).narrow(2, 1, 2).narrow(4, 0, 128);
    call.cache = part.copy_(call.cache);
    const at::Tensor written = expected_cache(call).to(device);
    check_attention(call);
    const at::Tensor expected = at::full_like(whole, kNaN);
    expected.narrow(0, 1, 2).narrow(2, 1, 2).narrow(4, 0, 128).copy_(written);
    CHECK(bit_mismatch(whole, expected) == "");
  }
}

WARPFUSE_DEVICE_TEST("a NaN that the queries of a prompt see",
                     "[cached_attention][prompt][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    const AttentionCall plain = prompt_of(dtype, device, 40, 64);
    for (const int64_t of_two : {0, 1}) {
      AttentionCall call = plain, clean = plain;
      call.cache = plain.cache.clone();
      clean.cache = plain.cache.clone();
      call.cache[1][of_two][0][1][3][5].fill_(kNaN);
      const at::Tensor output = call.run(), before = clean.run();
      const at::Tensor seen = output[0][1];
      CHECK(at::isnan(of_two == 0 ? seen : seen.select(-1, 5)).all().item<bool>());
      CHECK(output[0][0].equal(before[0][0]));
      CHECK(output[1].equal(before[1]));
    }
  }
}

#ifdef WARPFUSE_WITH_CUDA
WARPFUSE_GPU_TEST("a long prompt", "[cached_attention][prompt][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    check_attention(random_attention(
        {.batch = 1, .heads = 2, .key_heads = 1, .tokens = 1024, .slots = 1100, .head_dim = 64},
        dtype, device));
  }
}

WARPFUSE_GPU_TEST("tokens of a prompt past the cache see all slots and are not written",
                  "[cached_attention][prompt][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const int64_t window : {0, 20, 90}) {
      AttentionCall call = prompt_of(dtype, device, 80, 100, 0);
      call.window = window;
      call.positions.add_(30);
      call.positions[1][79].fill_(int64_t{1} << 40);
      call.cache = random_tensor(call.cache.sizes(), dtype, device, 1.0);
      check_attention(call);
    }
  }
}

WARPFUSE_GPU_TEST("a prompt is one kernel by tiles",
                  "[cached_attention][prompt][launches][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const int64_t tokens : {16, 1024}) {
      const CounterDelta tiles("tier.tile");
      AttentionCall call = prompt_of(dtype, device, tokens, 1024);
      const auto launches = launches_during([&] { call.run(); });
      CHECK(launches.size() == 1);
      CHECK(tiles() == 1);
    }
  }
}
#endif
