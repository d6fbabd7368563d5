// The kernels of the row engine, as test_cuda_sanitize.cpp has the others.

#include <warpfuse/softmax.h>

#include "support/compare.h"
#include "support/devices.h"
#include "support/dropout_checks.h"
#include "support/inputs.h"
#include "support/masks.h"
#include "support/pch.h"
#include "support/reference.h"
#include "support/row_functions.h"

namespace {

void check_functions(int64_t heads, int64_t queries, int64_t keys, at::ScalarType dtype,
                     const at::Device& device, Offsets offsets) {
  offsets.on_host = true;
  for (const RowFunction& function : row_functions(heads, queries, keys, dtype, device, offsets)) {
    INFO(function.name << " of " << describe(function.rows));
    CHECK(mismatch(function.run(), function.expected()) == "");
  }
}

/// Positions and lengths on the host, some before the first key and some past the last.
MaskArguments random_rules(int64_t batch, int64_t queries, int64_t keys, at::ScalarType index) {
  return {.query_positions = at::randint(-1, keys + 2, {batch, queries}, index),
          .key_lengths = at::randint(0, keys + 1, {batch}, index)};
}

/// Forward and backward, without dropout and with it.
void check_attention(const at::Tensor& scores, const MaskArguments& a, const at::Device& device) {
  INFO(describe(scores) << ", " << describe(a));
  const at::Tensor grad = random_tensor(scores.sizes(), scores.scalar_type());
  const MaskArguments there = to(device, a);
  const at::Tensor output = masked_softmax(scores.to(device), there);
  CHECK(mismatch(output, expected_masked_softmax(scores, a)) == "");
  CHECK(mismatch(masked_softmax_backward(grad.to(device), output, there),
                 expected_masked_softmax_backward(grad, output.cpu(), a)) == "");
  check_masked_dropout(scores.to(device), there, 0.3);
}

/// Calls check() with a table of each kernel: of the tier chunk alone, or of all others.
template <typename Check>
void for_tables(bool chunk, const Check& check) {
  for (const std::string& run : runs_of_all_tiers()) {
    if (run.starts_with("chunk") == chunk) {
      const TuningInUse tuning(tuning_with(run));
      INFO(run);
      check();
    }
  }
}

void check_rows(const at::Device& device) {
  // The last pack of the tensor is not whole; neither is the first, where it starts off.
  check_functions(1, 3, 333, at::kHalf, device, {});
  check_functions(1, 3, 333, at::kFloat, device, {.input = 1, .second = 1});
}

void check_rows_with_dropout(const at::Device& device) {
  for (const DropoutCall& order : kOrders) {
    check_dropout(random_tensor({3, 333}, at::kHalf, device), with(order, -1, 0.3));
    check_dropout(random_tensor({3, 333}, at::kFloat, device), with(order, -1, 0.3));
  }
  MaskArguments arguments = random_rules(1, 3, 333, at::kLong);
  arguments.attn_mask = random_bool({3, 333}, at::kCPU);
  check_masked_dropout(random_tensor({1, 3, 333}, at::kBFloat16, device), to(device, arguments),
                       0.3);
}

}  // namespace

WARPFUSE_GPU_TEST("rows in every tier but chunk", "[sanitize]") {
  for_tables(false, [&] { check_rows(device); });
  for (const at::ScalarType dtype : kDtypes) {
    check_functions(3, 5, 9, dtype, device, {});  // many rows a warp
  }
  const TuningInUse split(tuning_with("stream 32 0 4 0"));
  check_functions(1, 2, 4099, at::kBFloat16, device, {.input = 3});
}

// The TMA unit stores their results.
WARPFUSE_GPU_TEST("rows in chunks", "[sanitize-bulk]") {
  for_tables(true, [&] {
    check_rows(device);
    check_functions(1, 37, 50, at::kHalf, device, {});  // in words
    check_rows_with_dropout(device);
  });
}

WARPFUSE_GPU_TEST("rows that lie apart, by units", "[sanitize]") {
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf}) {
    for (const int64_t keys : {13, 20, 50, 63, 100, 200, 301, 600}) {
      const int64_t rows = 5, apart = keys + 4;  // the last row ends where the memory does
      const at::Tensor memory = random_tensor({(rows - 1) * apart + keys}, dtype);
      const auto rows_of = [&](const at::Tensor& of) {
        return of.as_strided({rows, keys}, {apart, 1});
      };
      INFO(dtype << ", " << keys << " keys");
      CHECK(mismatch(warpfuse::softmax(rows_of(memory.to(device)), -1),
                     expected_softmax(rows_of(memory), -1)) == "");
    }
  }
}

WARPFUSE_GPU_TEST("attention whose queries fill no block", "[sanitize]") {
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf}) {
    for (const auto& [batch, heads, queries, keys] :
         std::vector<std::array<int64_t, 4>>{{1, 1, 5, 7}, {3, 2, 5, 7}, {2, 1, 9, 40}}) {
      const at::Tensor scores = random_tensor({batch, heads, queries, keys}, dtype);
      for (const at::ScalarType index : {at::kInt, at::kLong}) {
        MaskArguments rules = random_rules(batch, queries, keys, index);
        check_attention(scores, rules, device);
        rules.window = 3;
        check_attention(scores, rules, device);
      }
      check_attention(scores, {.attn_mask = random_bool({batch, 1, 1, keys}, at::kCPU)}, device);
      check_attention(scores,
                      {.attn_mask = random_additive({heads, queries, 1}, at::kFloat, at::kCPU),
                       .causal = "upper_left"},
                      device);
    }
  }
}

// Not among [sanitize]: memcheck must find fault with it, or tensors do not end where allocations
// do.
TEST_CASE("a position fewer than queries", "[.][past-the-end]") {
  if (!has_gpu()) {
    skip_test(kNoGpu);
    return;
  }
  const at::Tensor positions = at::zeros({1, 5}, at::kLong).to(at::kCUDA);
  const at::Tensor scores = random_tensor({1, 1, 6, 7}, at::kFloat, at::kCUDA);
  masked_softmax(scores, {.query_positions = at::from_blob(positions.mutable_data_ptr(), {1, 6},
                                                           positions.options())})
      .cpu();
}

WARPFUSE_GPU_TEST("rows with dropout in every tier but chunk", "[sanitize]") {
  for_tables(false, [&] { check_rows_with_dropout(device); });
  for (const DropoutCall& order : kOrders) {
    check_dropout(random_tensor({2, 33, 5}, at::kFloat, device), with(order, 1, 0.3));
  }
  const at::Tensor rng = rng_of(3, 4, device);
  const at::Tensor kept = dropout_mask(at::empty({3, 333}, rng.options()), 0.3, rng);
  CHECK(kept.cpu().equal(plain_factors({3, 333}, 0.3, rng).gt(0)));
}
