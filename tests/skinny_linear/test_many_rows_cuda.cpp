// Linear layers of 17 to 128 rows in half precision on a GPU: tiles of rows and outputs, and
// streams of many outputs.

#include <ATen/cuda/CUDAContext.h>

#include "rowwise/cuda/device_limits.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/linear_call.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/poison.h"
#include "support/row_engine.h"

namespace {

constexpr at::ScalarType kHalves[] = {at::kHalf, at::kBFloat16};

int64_t kernels_of(const auto& run) {
  const CounterDelta moved("tier.tile");
  run();
  return moved();
}

/// kernels: of the plugin, on a GPU with as much shared memory as Hopper's.
void check_values(const LinearCall& call, int64_t kernels) {
  INFO(describe(call));
  const Poison poison;
  at::Tensor output;
  const int64_t found = kernels_of([&] { output = call.run(); });
  if (row_limits().shared_bytes >= size_t{160} * 1024) {
    CHECK(found == kernels);
  }
  CHECK(mismatch(output, expected_linear(call)) == "");
}

/// Skips the test case where there is no kernel that streams weights. Returns whether it did.
bool skip_without_streams() {
  const bool has = at::cuda::getCurrentDeviceProperties()->major == 9 &&
                   warpfuse::cuda::device_limits().dependent_launch &&
                   row_limits().shared_bytes >= size_t{220} * 1024;
  if (!has) {
    skip_test("no such kernel: no GPU of Hopper's, code for older ones, or little shared memory");
  }
  return !has;
}

}  // namespace

WARPFUSE_GPU_TEST("tiles of rows and outputs of any size", "[skinny_linear][tiles][portable]") {
  const int clusters = row_limits().cluster_blocks;
  for (const at::ScalarType dtype : kHalves) {
    for (const auto& [in, out] : std::vector<std::pair<int64_t, int64_t>>{
             {8, 4}, {200, 24}, {768, 772}, {1024, 64}, {1600, 96}, {3072, 768}, {4104, 36}}) {
      const int64_t splits = in <= 1024 ? 1 : in <= 2048 ? 2 : in <= 4096 ? 4 : 8;
      for (const int64_t rows : {17, 32, 33, 64}) {
        for (const std::string norm : {"", "layer", "rms"}) {
          LinearCall call = random_linear({rows}, in, out, dtype, device, norm);
          call.activation = norm == "rms" ? "gelu" : "none";
          check_values(call, splits <= clusters ? 1 : 0);
        }
      }
    }
  }
}

WARPFUSE_GPU_TEST("what tiles of rows and outputs do not take", "[skinny_linear][tiles]") {
  for (const at::ScalarType dtype : kHalves) {
    check_values(random_linear({129}, 64, 64, dtype, device, "layer"), 0);
    check_values(random_linear({20}, 64, 66, dtype, device, "layer"), 0);
    check_values(random_linear({20}, 36, 64, dtype, device), 0);
    check_values(random_linear({128}, 768, 6000, dtype, device), 0);  // too many blocks
    LinearCall call = random_linear({20}, 64, 64, dtype, device);
    call.residual = placed_at(1, call.residual, device);
    check_values(call, 0);
  }
  check_values(random_linear({20}, 64, 64, at::kFloat, device), 0);
}

WARPFUSE_GPU_TEST("tiles of rows whose mean is large beside their deviation",
                  "[skinny_linear][tiles][portable]") {
  for (const at::ScalarType dtype : kHalves) {
    for (const int64_t in : {64, 768}) {
      LinearCall call = random_linear({40}, in, 48, dtype, device, "layer");
      call.input = call.input.add(50);
      check_values(call, 1);
      call.input = call.input.mul(0).add(2);  // no deviation at all
      check_values(call, 1);
    }
  }
}

WARPFUSE_GPU_TEST("streams of many outputs", "[skinny_linear][streams]") {
  if (skip_without_streams()) {
    return;
  }
  for (const at::ScalarType dtype : kHalves) {
    for (const auto& [in, out] : std::vector<std::pair<int64_t, int64_t>>{
             {8, 8192}, {200, 9001}, {768, 50'257}, {1024, 9000}, {1280, 100}}) {
      for (const int64_t rows : {17, 64, 65, 128}) {
        if (out > 8000) {  // fewer are tiles'
          check_values(random_linear({rows}, in, out, dtype, device), out % 8 != 0 ? 1 : 0);
        }
        const LinearCall call = integer_linear(rows, in, out, dtype, device);
        INFO(describe(call));
        at::Tensor tokens;
        CHECK(kernels_of([&] { tokens = call.argmax(); }) == 2);
        CHECK(at::equal(tokens.cpu(), first_of_largest(call)));
      }
    }
    LinearCall call = random_linear({70}, 768, 9001, dtype, device, "layer");
    call.activation = "gelu_tanh";
    check_values(call, 1);
    check_values(random_linear({20}, 2048, 8201, dtype, device), 0);  // more than shared memory
  }
}

WARPFUSE_GPU_TEST("NaN and infinities in streams of outputs", "[skinny_linear][streams]") {
  if (skip_without_streams()) {
    return;
  }
  for (const at::ScalarType dtype : kHalves) {
    LinearCall call = integer_linear(100, 64, 9000, dtype, device);
    const at::Tensor expected = first_of_largest(call);
    call.input[3][0].fill_(kNaN);
    const at::Tensor tokens = call.argmax().cpu();
    CHECK(tokens[3].item<int64_t>() == -1);
    for (const int64_t row : {0, 2, 4, 99}) {
      CHECK(tokens[row].item<int64_t>() == expected[row].item<int64_t>());
    }
    call = integer_linear(100, 64, 9000, dtype, device);
    call.bias[7000].fill_(kInf);
    CHECK(call.argmax().eq(7000).all().item<bool>());
    call.bias.fill_(-kInf);
    CHECK(call.argmax().eq(-1).all().item<bool>());
    call.weight[8999][0].fill_(kNaN);
    CHECK(call.argmax().eq(-1).all().item<bool>());
  }
}
