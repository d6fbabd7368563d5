// The tier chunk: short rows of any length, at any place, in chunks that end anywhere.

#include "support/compare.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/pch.h"
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
  const TuningInUse forward(tuning_with("chunk 64 32 1 0"));
  const TuningInUse both(tuning_with("chunk 96 16 1 0"));
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
    // The longest rows of a number of lanes, and one element more.
    for (const int64_t keys :
         {1, 2, 3, 7, 15, 17, 31, 33, 63, 65, 129, 255, 257, 509, 511, 513, 989, 991}) {
      // Few rows, some of them a part of a chunk; and enough for chunks of full size.
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
      CHECK(check_chunks(2, 1000, keys, dtype, device, {}) >= 6);
    }
  }
}
