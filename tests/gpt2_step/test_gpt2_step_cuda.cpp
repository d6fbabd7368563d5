// gpt2_step on a GPU: which steps are one kernel, tables' ends, CUDA graphs, streams.

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include "support/devices.h"
#include "support/inputs.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/row_engine.h"
#include "support/step_call.h"

namespace {

bool has_step_kernel() { return at::cuda::getCurrentDeviceProperties()->major >= 9; }

/// Kernels of the tier tile that a step launches: 1 by the one kernel.
int64_t tiles(StepCall& call) {
  const CounterDelta moved("tier.tile");
  call.run();
  return moved();
}

}  // namespace

WARPFUSE_GPU_TEST("up to 4 sequences are one kernel, others the operators'",
                  "[gpt2_step][launches]") {
  if (!has_step_kernel()) {
    return skip_test("no code for this GPU's bulk copies");
  }
  const auto check = [&](const StepShape& shape, at::ScalarType dtype, bool one) {
    StepCall call = random_step(shape, dtype, device);
    INFO(describe(call));
    CHECK((tiles(call) == 1) == one);
  };
  for (const at::ScalarType dtype : kInferenceDtypes) {
    check({.batch = 1}, dtype, true);
    check({.batch = 4}, dtype, true);
    check({.batch = 5}, dtype, false);
    check({.heads = 12, .head_dim = 64, .inner = 3072}, dtype, true);
    check({.inner = 3080}, dtype, false);
    check({.heads = 13, .head_dim = 64}, dtype, false);
    check({.head_dim = 24}, dtype, false);  // packs that are no power of two
    check({.layers = 25, .vocabulary = 8}, dtype, false);
    StepCall call = random_step({}, dtype, device);
    call.layers[2] = call.layers[2].t().contiguous().t();
    CHECK(tiles(call) != 1);
    call = random_step({}, dtype, device);
    call.layers[3] = at::zeros({97}, call.layers[3].options()).narrow(0, 1, 96);
    CHECK(tiles(call) != 1);
  }
}

WARPFUSE_GPU_TEST("ids and positions outside their tables", "[gpt2_step]") {
  if (!has_step_kernel()) {
    return skip_test("elsewhere they are at::embedding's");
  }
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf}) {
    // A row of zeros, as if the tables had one.
    StepCall call = random_step({.batch = 4, .slots = 20}, dtype, device);
    StepCall with_zeros = call;
    const auto extended = [](const at::Tensor& table) {
      return at::constant_pad_nd(table, {0, 0, 0, 1});
    };
    with_zeros.cache = call.cache.clone();
    with_zeros.token_embedding = extended(call.token_embedding);
    call.ids.copy_(at::tensor({-1, 301, 5, 1'000'000'000}, at::kLong).unsqueeze(1));
    with_zeros.ids = call.ids.clone();
    with_zeros.ids.index_put_({call.ids.ne(5)}, at::scalar_tensor(301, call.ids.options()));
    CHECK(call.run().equal(with_zeros.run()));
    CHECK(call.cache.nan_to_num(9).equal(with_zeros.cache.nan_to_num(9)));
  }
  // A negative position writes nothing and sees nothing; one past the cache writes nothing.
  StepCall call = random_step({.batch = 2, .slots = 20}, at::kFloat, device);
  call.cache.nan_to_num_(1);
  call.position_embedding = random_tensor({30, 32}, at::kFloat, device, 1.0);
  const at::Tensor before = call.cache.clone();
  call.positions.copy_(at::tensor({-3, 25}, at::kLong).unsqueeze(1));
  CHECK(call.run().ge(0).all().item<bool>());
  CHECK(call.cache.equal(before));
}

WARPFUSE_GPU_TEST("replays of a step have the bits of calls, on any stream", "[gpt2_step]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    StepCall call =
        random_step({.batch = 3, .layers = 4, .vocabulary = 5000, .slots = 200}, dtype, device);
    const at::Tensor cache = call.cache.clone();
    StepCall other = call;
    other.cache = cache.clone();
    other.ids = call.ids.clone();
    other.positions = call.positions.clone();
    const auto stream = at::cuda::getStreamFromPool(), second = at::cuda::getStreamFromPool();
    c10::cuda::device_synchronize();
    at::cuda::CUDAGraph graph;
    at::Tensor next;
    {
      const c10::cuda::CUDAStreamGuard guard(stream);
      call.run();
      graph.capture_begin();
      next = call.run();
      graph.capture_end();
    }
    for (int64_t i = 0; i < 30; ++i) {
      c10::cuda::device_synchronize();
      at::Tensor expected;
      {
        // Both at once: each takes all multiprocessors, so one waits for the other.
        const c10::cuda::CUDAStreamGuard guard(second);
        expected = other.run();
      }
      {
        const c10::cuda::CUDAStreamGuard guard(stream);
        graph.replay();
      }
      c10::cuda::device_synchronize();
      CHECK(next.equal(expected));
      CHECK(call.cache.nan_to_num(9).equal(other.cache.nan_to_num(9)));
      call.ids.copy_(next.clamp_min(0).unsqueeze(1));
      other.ids.copy_(call.ids);
      call.positions.sub_(1);
      other.positions.sub_(1);
    }
  }
}
