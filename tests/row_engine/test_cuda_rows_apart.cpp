// Inputs that are not contiguous: the tier chunk reads rows that lie apart, as a slice of longer
// rows has them, by units or by chunks; others are copied to the output.

#include <c10/cuda/CUDACachingAllocator.h>
#include <rowwise/tuning.h>

#include "support/compare.h"
#include "support/devices.h"
#include "support/dropout_checks.h"
#include "support/inputs.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/poison.h"
#include "support/row_engine.h"
#include "support/row_functions.h"

namespace {

/// The values as columns from `offset` on of rows that are `gap` elements longer, between NaN.
at::Tensor apart(const at::Tensor& values, int64_t offset, int64_t gap) {
  std::vector<int64_t> sizes = values.sizes().vec();
  sizes.back() += gap;
  const at::Tensor memory = at::full(sizes, kNaN, values.options());
  return memory.narrow(-1, offset, values.size(-1)).copy_(values);
}

void check_operators(const at::Tensor& x) {
  INFO(describe(x) << " with strides " << x.strides());
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    const Poison poison;
    CHECK(mismatch(op(x, -1), op.expected(x, -1)) == "");
  }
  const int64_t queries = x.size(2), keys = x.size(3);
  const MaskArguments causal{.scale = 0.5, .causal = "lower_right"};
  // The gradient at another alignment than the output, and both of them apart.
  const at::Tensor g = apart(random_tensor(x.sizes(), x.scalar_type(), x.device()), 1, 9);
  const at::Tensor y = at::softmax(x.to(at::kDouble), -1).to(x.scalar_type());
  const at::Tensor masked_y =
      expected_masked_softmax(x, causal).values.to(x.device(), x.scalar_type());
  for (const int64_t gap : {0, 24}) {
    const at::Tensor output = apart(y, gap / 12, gap),
                     masked_output = apart(masked_y, gap / 12, gap);
    const Poison poison;
    CHECK(mismatch(softmax_backward(g, output, -1),
                   expected_softmax_backward(g, output, -1, false)) == "");
    CHECK(mismatch(masked_softmax_backward(g, masked_output, causal),
                   expected_masked_softmax_backward(g, masked_output, causal)) == "");
  }
  const at::Tensor visible = random_bool({queries, keys}, x.device());
  for (const MaskArguments& arguments :
       {MaskArguments{.scale = 0.5}, MaskArguments{.causal = "lower_right", .window = keys / 2 + 2},
        MaskArguments{.scale = 2.0, .causal = "lower_right"},
        MaskArguments{.scale = 0.5, .attn_mask = visible},
        MaskArguments{.attn_mask = random_tensor({queries, keys}, x.scalar_type(), x.device())}}) {
    check_masked_softmax(x, arguments);
  }
  for (const DropoutCall& order : kOrders) {
    check_dropout(x, with(order, -1, 0.3));
  }
  check_masked_dropout(x, {.scale = 0.5, .causal = "lower_right"}, 0.3);
  check_masked_dropout(x, {.attn_mask = visible}, 0.3);
}

}  // namespace

WARPFUSE_GPU_TEST("rows that lie apart, of any length and alignment", "[apart][portable]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t keys : {1, 2, 13, 46, 48, 49, 50, 64, 129, 577, 1100, 5000}) {
      const at::Tensor values = random_tensor({2, 3, 7, keys}, dtype, device);
      for (const int64_t gap : {1, 8, 15}) {
        check_operators(apart(values, gap / 2, gap));
      }
    }
  }
}

WARPFUSE_GPU_TEST("rows that lie apart run by chunks, whatever the table says",
                  "[apart][portable]") {
  const int64_t most = warpfuse::kMaxGapColumns;
  for (const char* run : {"chunk 64 40 1 0", "block 256 4 1 0", "warp 64 4 1 0"}) {
    const TuningInUse tuning(tuning_with(run));
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      for (const int64_t keys : {int64_t{48}, int64_t{63}, most - 1, most, most + 1}) {
        const at::Tensor x = apart(random_tensor({1, 2, 33, keys}, dtype, device), 3, 8);
        INFO(run << ", " << describe(x));
        check_operators(x);
        const auto check_tier = [&](const auto& call) {
          const nlohmann::json launches = launches_during(call);
          REQUIRE(launches.size() == 1);
          if (keys <= most) {
            CHECK(launches.at(0).at("tier") == "chunk");
          }
        };
        const at::Tensor visible = random_bool({33, keys}, device);
        for (const SoftmaxOperator& op : kSoftmaxOperators) {
          check_tier([&] { op(x, -1); });
        }
        check_tier([&] { masked_softmax(x, {}); });
        check_tier([&] { masked_softmax(x, {.causal = "lower_right"}); });
        check_tier([&] { masked_softmax(x, {.attn_mask = visible}); });
      }
    }
  }
}

WARPFUSE_GPU_TEST("rows that lie apart by units, and by chunks", "[apart][chunk][portable]") {
  const TuningInUse tuning(tuning_with("chunk 64 40 1 0"));
  for (const at::ScalarType dtype : kInferenceDtypes) {
    // The first and the last length of each form, and some between.
    for (const int64_t keys : {1,  3,   8,   9,   13,  16,  17,  32,  33,  48,  64,  65,
                               97, 128, 129, 160, 256, 257, 287, 288, 301, 512, 513, 1000}) {
      const at::Tensor values = random_tensor({1, 1, 100'000 / keys, keys}, dtype, device);
      const at::Tensor few = values.slice(2, 0, 60), two = values.slice(2, 0, 2);
      for (const at::Tensor& x :
           {apart(values, 0, 15), apart(values, 2, 16), apart(two, 0, 8), apart(few, 5, 1000),
            apart(few, 1, warpfuse::kMaxGapStride - keys)}) {
        INFO(describe(x) << " with strides " << x.strides());
        const bool words = dtype == at::kFloat ||
                           (keys % 2 == 0 && x.stride(2) % 2 == 0 && x.storage_offset() % 2 == 0);
        const bool units = keys >= 9 && (keys <= 128 || words || keys >= 288);
        for (const SoftmaxOperator& op : kSoftmaxOperators) {
          const Poison poison;
          const CounterDelta chunks("tier.chunk"), by_units("chunk.units");
          const at::Tensor y = op(x, -1);
          CHECK(chunks() == 1);
          CHECK(by_units() == static_cast<int>(units));
          CHECK(mismatch(y, op.expected(x, -1)) == "");
          if (!units && keys % 8 != 0) {  // rows that begin at packs run otherwise
            CHECK(bit_mismatch(y, op(x.contiguous(), -1)) == "");
          }
        }
      }
    }
  }
}

WARPFUSE_GPU_TEST("chunks of rows that lie apart, whole and in part", "[apart][chunk][portable]") {
  const MaskArguments causal{.causal = "lower_right"};
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const int64_t keys : {1, 3, 13, 33, 49, 65, 129, 257, 577, 991}) {
      const at::Tensor values = random_tensor({1, 1, 100'000 / keys, keys}, dtype, device);
      const at::Tensor few = values.slice(2, 0, 60);
      for (const at::Tensor& x : {apart(values, 0, 15), apart(values, 5, 1000),
                                  apart(few, 1, warpfuse::kMaxGapStride - keys)}) {
        const CounterDelta chunks("tier.chunk"), by_units("chunk.units");
        check_masked_softmax(x, causal);
        CHECK(chunks() >= 1);
        CHECK(by_units() == 0);
      }
    }
  }
}

WARPFUSE_GPU_TEST("chunks have as many warps as a block's shared memory has room for",
                  "[apart][chunk][portable]") {
  constexpr int64_t kRoom = 101'376;  // of GPUs that let a block have 99 KB
  const TuningInUse little(tuning_from("shared_bytes=101376"));
  const TuningInUse chunks(tuning_with("chunk 128 20 1 0"));
  const auto launch_of = [&](const auto& call) {
    const nlohmann::json launches = launches_during(call);
    REQUIRE(launches.size() == 1);
    CHECK(launches[0]["tier"] == "chunk");
    CHECK(launches[0]["shared_bytes"] <= kRoom);
    return launches[0];
  };
  // Slices, by two warps: a chunk has two runs of a mask tensor whose elements are larger.
  for (const auto& [keys, threads] : {std::pair(500, 64), std::pair(1000, 32)}) {
    const at::Tensor scores = apart(random_tensor({2, 1, 33, keys}, at::kHalf, device), 3, 24);
    const MaskArguments masked{.attn_mask = random_tensor({2, 1, 33, keys}, at::kFloat, device)};
    CHECK(launch_of([&] { masked_softmax(scores, masked); })["threads"] == threads);
    check_masked_softmax(scores, masked);
  }
  // A gradient by a line of the table with four.
  const at::Tensor y = at::softmax(random_tensor({3000, 777}, at::kHalf, device), -1);
  const at::Tensor g = random_tensor({3000, 777}, at::kHalf, device);
  CHECK(launch_of([&] { softmax_backward(g, y, -1); })["threads"] < 128);
  CHECK(mismatch(softmax_backward(g, y, -1), expected_softmax_backward(g, y, -1, false)) == "");
}

WARPFUSE_GPU_TEST("inputs that are not contiguous take no memory beside the output", "[apart]") {
  namespace Allocator = c10::cuda::CUDACachingAllocator;
  const auto stats = [&] { return Allocator::getDeviceStats(device.index()).allocated_bytes[0]; };
  const at::Tensor values = random_tensor({4, 8, 200, 200}, at::kHalf, device);
  const at::Tensor few = random_tensor({1, 1, 50, 200}, at::kHalf, device);
  const at::Tensor rng = rng_of(3, 8, device);
  for (const at::Tensor& x :
       {apart(values, 0, 56), apart(values, 0, 56).transpose(0, 1), values.transpose(2, 3),
        values.slice(0, 0, 1).expand_as(values), apart(few, 7, warpfuse::kMaxGapStride - 200),
        apart(few, 7, warpfuse::kMaxGapStride - 199)}) {
    INFO("strides " << x.strides());
    const auto check_no_bytes = [&](const auto& call) {
      Allocator::resetPeakStats(device.index());
      const int64_t before = stats().current;
      const auto results = call();
      // Statistics and rng state stay; a copy would not.
      CHECK(stats().peak == stats().current);
      CHECK(stats().current > before);
    };
    check_no_bytes([&] { return kSoftmaxOperators[0](x, -1); });
    check_no_bytes([&] { return masked_softmax(x, {.causal = "lower_right"}); });
    for (const DropoutCall& order : kOrders) {
      check_no_bytes([&] { return dropout_softmax(x, with(order, -1, 0.3), rng); });
    }
    check_no_bytes([&] { return masked_dropout(x, {.causal = "lower_right"}, 0.3, rng); });
    // A gradient copies one input to the result.
    const at::Tensor plain = x.contiguous();
    check_no_bytes([&] { return softmax_backward(x, plain, -1); });
    check_no_bytes([&] { return softmax_backward(plain, x, -1); });
    check_no_bytes([&] { return masked_softmax_backward(x, plain, {.causal = "lower_right"}); });
  }
}
