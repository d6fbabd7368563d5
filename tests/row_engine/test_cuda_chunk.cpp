// The tier chunk: short rows of any length, at any place, in chunks that end anywhere.

#include "support/compare.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/poison.h"
#include "support/reference.h"
#include "support/row_engine.h"
#include "support/row_functions.h"

namespace {

/// All functions that have the kernel take it; returns how many.
int check_chunks(int64_t heads, int64_t queries, int64_t keys, at::ScalarType dtype,
                 const at::Device& device, const Offsets& offsets) {
  int checked = 0;
  for (const RowFunction& function : row_functions(heads, queries, keys, dtype, device, offsets)) {
    const warpfuse::RowPlan plan = plan_of(function);
    if (plan.tier == warpfuse::Tier::chunk) {
      check_row_function(function, plan);
      ++checked;
    }
  }
  return checked;
}

}  // namespace

WARPFUSE_GPU_TEST("chunks of short rows", "[chunk][portable]") {
  const TuningInUse forward(tuning_with("chunk 64 40 1 0"));
  const TuningInUse both(tuning_with("chunk 96 20 1 0"));
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
    // The longest rows of a number of lanes, and one element more; rows that end within a word.
    for (const int64_t keys : {1,  2,  3,  7,   15,  17,  31,  33,  34,  39,  41,
                               63, 65, 79, 129, 255, 257, 509, 511, 513, 989, 991}) {
      // Few rows, some of them a part of a chunk; and enough for larger chunks.
      const int64_t many = 200'000 / keys;
      for (const int64_t queries : {int64_t{1}, int64_t{5}, many}) {
        INFO(queries << " x " << keys << ' ' << dtype);
        CHECK(check_chunks(queries == many ? 3 : 2, queries, keys, dtype, device,
                           {.input = 1, .second = 1}) > 0);
      }
      // Inputs and outputs that lie otherwise to 16-byte boundaries than each other.
      for (const Offsets& offsets : {Offsets{.input = 0, .second = 1}, Offsets{.input = 3}}) {
        check_chunks(2, 37, keys, dtype, device, offsets);
      }
    }
  }
}

WARPFUSE_GPU_TEST("the table in use takes short rows of any length by chunks", "[chunk]") {
  const TuningInUse usual(warpfuse::default_tuning().to_string());
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const int64_t keys : {2, 33, 49, 50, 63}) {
      INFO(keys << ' ' << dtype);
      // Without a mask tensor softmax, log_softmax and attention, forward; and two backwards more,
      // but for 63 floats: 10 to 15 packs of attention's backward are a warp's on an H200, where
      // 49 keys take 123 us in place of 135.
      const int functions = dtype == at::kFloat && keys == 63 ? 4 : 6;
      CHECK(check_chunks(2, 1000, keys, dtype, device, {}) >= functions);
    }
  }
}

WARPFUSE_GPU_TEST("rows of half precision that begin at words, without chunks",
                  "[chunk][portable]") {
  const TuningInUse forward(tuning_with("chunk 64 40 1 0"));
  const TuningInUse both(tuning_with("chunk 96 20 1 0"));
  // Runs all that takes words: x, a gradient at another place, and what it is of.
  const auto check = [&](const at::Tensor& x, const at::Tensor& grad, bool at_words,
                         bool backward_words) {
    for (const SoftmaxOperator& op : kSoftmaxOperators) {
      INFO(op.name << " of " << describe(x));
      const int64_t columns = x.size(1);
      const bool words = at_words && columns >= 42 && columns <= (op.log ? 50 : 46);
      const Poison poison;
      const CounterDelta chunks("tier.chunk"), by_units("chunk.units");
      const at::Tensor y = op(x, 1);
      CHECK(mismatch(y, expected_softmax(x, 1, op.log)) == "");
      CHECK(by_units() == static_cast<int>(words));
      const at::Tensor dx =
          op.log ? log_softmax_backward(grad, y, 1) : softmax_backward(grad, y, 1);
      CHECK(mismatch(dx, expected_softmax_backward(grad, y, 1, op.log)) == "");
      CHECK(by_units() == static_cast<int>(words) + static_cast<int>(backward_words));
      CHECK(chunks() == 2);
    }
  };
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    for (const int64_t columns : {36, 38, 41, 42, 46, 49, 50, 54, 55, 60, 62, 66}) {
      // One row; fewer than a block takes; and several blocks, the last of them with few.
      for (const int64_t rows : {1, 9, 1003}) {
        for (const int64_t offset : {0, 1, 2}) {
          for (const int64_t second : {0, 3, 6}) {
            const at::Tensor x = random_at(offset, {rows, columns}, dtype, device);
            const at::Tensor grad = random_at(second, {rows, columns}, dtype, device);
            const bool even = columns % 2 == 0;
            check(x, grad, even && offset % 2 == 0,
                  even && second % 2 == 0 && columns >= 38 && columns <= 62);
          }
        }
      }
    }
    // Rows without a finite sum, and of the lowest values.
    for (const int64_t columns : {46, 50}) {
      const at::Tensor x = random_at(0, {70, columns}, dtype, device);
      fill_extremes(x);
      check(x, random_at(0, x.sizes(), dtype, device), true, true);
    }
  }
}

WARPFUSE_GPU_TEST("rows of chunks without a finite sum", "[chunk][portable]") {
  const TuningInUse forward(tuning_with("chunk 64 40 1 0"));
  for (const at::ScalarType dtype : kInferenceDtypes) {
    // One lane with few slots, one with many, and several lanes.
    for (const int64_t columns : {5, 13, 33, 65, 129}) {
      const at::Tensor x = random_at(1, {70, columns}, dtype, device);
      fill_extremes(x);
      for (const SoftmaxOperator& op : kSoftmaxOperators) {
        INFO(op.name << " of " << describe(x));
        const Poison poison;
        const CounterDelta chunks("tier.chunk");
        CHECK(mismatch(op(x, 1), expected_softmax(x, 1, op.log)) == "");
        CHECK(chunks() == 1);
      }
    }
  }
}

WARPFUSE_GPU_TEST("chunks of full size", "[chunk][portable]") {
  const TuningInUse forward(tuning_with("chunk 64 40 1 0"));
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const int64_t columns : {3, 33, 257}) {
      // The last chunk is a part of one; rows that start at a pack and rows that do not.
      const int64_t rows = 24'000'000 / columns + 1;
      for (const int64_t offset : {0, 1}) {
        INFO(rows << " x " << columns << ' ' << dtype << " from element " << offset);
        const at::Tensor x = random_at(offset, {rows, columns}, dtype, device);
        const Poison poison;
        at::Tensor y;
        const nlohmann::json launches = launches_during([&] { y = warpfuse::softmax(x, 1); });
        CHECK(mismatch(y, expected_softmax(x, 1, false)) == "");
        REQUIRE(launches.size() == 1);
        CHECK(launches[0]["tier"] == "chunk");
        // A chunk per warp, of 2 KB or more.
        constexpr int64_t kBlockWarps = 2, kChunkBytes = 2000;
        CHECK(launches[0]["grid"] <=
              static_cast<int64_t>(x.nbytes()) / (kBlockWarps * kChunkBytes));
      }
    }
  }
}
