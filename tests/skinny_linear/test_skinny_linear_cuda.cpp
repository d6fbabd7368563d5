// Linear layers of few rows on a GPU: which kernel runs, chains of kernels in CUDA graphs, weights
// that are updated in a graph, streams.

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>

#include "support/attention_call.h"
#include "support/captured.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/linear_call.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/row_engine.h"

namespace {

/// Two blocks of a transformer with one head of 64 elements, on the operators of decode steps:
/// 6 kernels, and the token.
struct TinyModel {
  int64_t batch;
  std::vector<LinearCall> projections, outputs;
  LinearCall logits;
  AttentionCall attention;
  at::Tensor x;  // [batch, 1, 64]

  TinyModel(int64_t batch, at::ScalarType dtype, const at::Device& device)
      : batch(batch),
        attention(random_attention(
            {.batch = batch, .heads = 1, .key_heads = 1, .slots = 40, .head_dim = 64}, dtype,
            device)),
        x(random_tensor({batch, 1, 64}, dtype, device)) {
    for (int i = 0; i < 2; ++i) {
      projections.push_back(random_linear({batch, 1}, 64, 192, dtype, device, "layer"));
      outputs.push_back(random_linear({batch, 1}, 64, 64, dtype, device));
    }
    logits = random_linear({batch, 1}, 64, 9000, dtype, device, "layer");
    attention.cache.nan_to_num_(0);  // slots that a row has not reached
  }

  at::Tensor hidden() {
    at::Tensor h = x;
    for (int i = 0; i < 2; ++i) {
      projections[i].input = h;
      const at::Tensor qkv = projections[i].run().view({batch, 1, 3, 1, 64});
      attention.layer = i;
      attention.query = qkv.select(2, 0).transpose(1, 2);
      attention.key = qkv.select(2, 1).transpose(1, 2);
      attention.value = qkv.select(2, 2).transpose(1, 2);
      outputs[i].input = attention.run().transpose(1, 2).reshape({batch, 1, 64});
      outputs[i].residual = h;
      h = outputs[i].run();
    }
    return h;
  }
  at::Tensor token() {
    logits.input = hidden();
    return logits.argmax();
  }
};

}  // namespace

WARPFUSE_GPU_TEST("few aligned rows are the tile kernel's, others ATen's",
                  "[skinny_linear][launches][portable]") {
  const auto tiles = [](const LinearCall& call, bool argmax = false) {
    const CounterDelta moved("tier.tile");
    argmax ? call.argmax() : call.run();
    return moved();
  };
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const std::string norm : {"", "layer", "rms"}) {
      for (const int64_t rows : {1, 8, 9, 16}) {
        CHECK(tiles(random_linear({rows}, 768, 768, dtype, device, norm)) == 1);
      }
      if (dtype == at::kFloat) {  // half precision: test_many_rows_cuda.cpp
        CHECK(tiles(random_linear({17}, 768, 768, dtype, device, norm)) == 0);
      }
      CHECK(tiles(random_linear({2}, 37, 19, dtype, device, norm)) == 0);
      LinearCall transposed = random_linear({2}, 64, 64, dtype, device, norm);
      transposed.weight = transposed.weight.t();
      CHECK(tiles(transposed) == 0);
      LinearCall odd = random_linear({2}, 64, 24, dtype, device, norm);
      odd.weight = at::zeros({24 * 64 + 1}, odd.weight.options())
                       .narrow(0, 1, int64_t{24} * 64)
                       .view({24, 64});
      CHECK(tiles(odd) == 0);
    }
    CHECK(tiles(random_linear({1}, 64, 50'257, dtype, device, "layer"), true) > 0);
    if (dtype == at::kFloat) {
      CHECK(tiles(random_linear({17}, 64, 50'257, dtype, device, "layer"), true) == 0);
    }
    const LinearCall call = random_linear({2}, 64, 24, dtype, device);
    const auto launches = launches_during([&] { call.run(); });
    REQUIRE(launches.size() == 1);
    CHECK(launches[0]["tier"] == "tile");
  }
}

WARPFUSE_GPU_TEST("from 8,192 outputs on, warps stay and take tile after tile",
                  "[skinny_linear][launches][portable]") {
  const auto blocks = [&](int64_t outputs) {
    const LinearCall call = random_linear({2}, 64, outputs, at::kBFloat16, device);
    return launches_during([&] { call.run(); })[0]["grid"].get<int64_t>();
  };
  CHECK(blocks(8191) == 1024);  // a block per tile of 8 outputs
  CHECK(blocks(8192) <= 128);   // 8 warps each
}

WARPFUSE_GPU_TEST("a chain of operators in a graph has the bits of calls one by one",
                  "[skinny_linear][cached_attention][portable]") {
  const c10::cuda::CUDAStreamGuard guard(at::cuda::getStreamFromPool());
  for (const auto& [dtype, batch] :
       std::vector<std::pair<at::ScalarType, int64_t>>{{at::kFloat, 2},
                                                       {at::kHalf, 2},
                                                       {at::kBFloat16, 2},
                                                       {at::kHalf, 40},
                                                       {at::kHalf, 100}}) {
    TinyModel model(batch, dtype, device);
    const at::Tensor cache = model.attention.cache.clone();
    Captured hidden([&] { return model.hidden(); }), token([&] { return model.token(); });
    for (int64_t i = 0; i < 20; ++i) {
      model.x.copy_(random_tensor({batch, 1, 64}, dtype, device));
      model.attention.positions.fill_(i);
      model.attention.cache.copy_(cache);
      const at::Tensor ahead = hidden.replay().clone(), written = model.attention.cache.clone();
      const at::Tensor tokens = token.replay().clone();
      model.attention.cache.copy_(cache);
      const at::Tensor expected = model.hidden();
      CHECK(at::isfinite(expected).all().item<bool>());
      CHECK(bit_mismatch(ahead, expected) == "");
      CHECK(bit_mismatch(written, model.attention.cache) == "");
      CHECK(at::equal(tokens, model.token()));
    }
  }
}

WARPFUSE_GPU_TEST("a weight that a graph updates right ahead is read updated",
                  "[skinny_linear][portable]") {
  const c10::cuda::CUDAStreamGuard guard(at::cuda::getStreamFromPool());
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const bool of_norm : {false, true}) {
      for (const bool in_chain : {false, true}) {
        const LinearCall ahead = random_linear({1}, 768, 768, dtype, device);
        LinearCall call = random_linear({1}, 768, 2304, dtype, device, "layer");
        call.weight = at::zeros_like(call.weight);
        call.norm_weight = at::zeros_like(call.norm_weight);
        call.bias = call.norm_bias = at::Tensor();
        (of_norm ? call.weight : call.norm_weight).fill_(0.125);
        const at::Tensor updated = of_norm ? call.norm_weight : call.weight;
        Captured captured([&] {
          if (in_chain) {
            call.input = ahead.run();
          }
          updated.add_(1);
          return call.run();
        });
        updated.zero_();
        for (int i = 1; i <= 50; ++i) {
          captured.replay();
          const at::Tensor output = captured.replay().clone();
          INFO(i << (of_norm ? ", norm_weight" : ", weight") << (in_chain ? ", in a chain" : ""));
          CHECK(updated.eq(2 * i).all().item<bool>());
          CHECK(bit_mismatch(output, call.run()) == "");
        }
      }
    }
  }
}

WARPFUSE_GPU_TEST("linear layers wait for their stream, and only that",
                  "[skinny_linear][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    const LinearCall call = random_linear({2}, 768, 768, dtype, device, "layer");
    const at::Tensor expected = call.run();
    CHECK(bit_mismatch(run_late(call.input, [&] { return call.run(); }), expected) == "");
  }
}

WARPFUSE_GPU_TEST("linear layers on two streams at once", "[skinny_linear][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    std::vector<LinearCall> calls;
    std::vector<at::Tensor> expected, tokens;
    for (int i = 0; i < 2; ++i) {
      calls.push_back(random_linear({2}, 768, 9000, dtype, device, "layer"));
      expected.push_back(calls[i].run());
      tokens.push_back(calls[i].argmax());
    }
    at::cuda::getDefaultCUDAStream().synchronize();
    const std::vector<at::cuda::CUDAStream> streams = {at::cuda::getStreamFromPool(),
                                                       at::cuda::getStreamFromPool()};
    std::vector<at::Tensor> outputs[2], found[2];
    for (int repeat = 0; repeat < 20; ++repeat) {
      for (int i = 0; i < 2; ++i) {
        const c10::cuda::CUDAStreamGuard guard(streams[i]);
        outputs[i].push_back(calls[i].run());
        found[i].push_back(calls[i].argmax());
      }
    }
    for (int i = 0; i < 2; ++i) {
      streams[i].synchronize();
      for (int repeat = 0; repeat < 20; ++repeat) {
        CHECK(bit_mismatch(outputs[i][repeat], expected[i]) == "");
        CHECK(at::equal(found[i][repeat], tokens[i]));
      }
    }
  }
}

WARPFUSE_GPU_TEST("a captured linear layer has the bits of an eager one",
                  "[skinny_linear][portable]") {
  const c10::cuda::CUDAStreamGuard guard(at::cuda::getStreamFromPool());
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const int64_t rows : {1, 8, 16, 17, 64, 128}) {
      for (const int64_t out : {768, 9000}) {
        const LinearCall call = random_linear({rows}, 768, out, dtype, device, "layer");
        Captured output([&] { return call.run(); }), tokens([&] { return call.argmax(); });
        CHECK(bit_mismatch(output.replay(), call.run()) == "");
        CHECK(at::equal(tokens.replay(), call.argmax()));
      }
    }
  }
}
