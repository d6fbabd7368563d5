// Every kernel of the row engine that a table can ask for: as many packs a lane as it is compiled
// for, in registers and in shared memory, in clusters of each size, split and in one piece;
// forward, backward, and with each kind of mask.

#include "support/compare.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/pch.h"
#include "support/poison.h"
#include "support/row_functions.h"

namespace {

using warpfuse::Direction;
using warpfuse::RowPlan;
using warpfuse::Tier;

/// Attention's scores [1, heads, queries, keys].
struct Size {
  int64_t heads, queries, keys;
};

/// All row functions under a table that runs what it can by `run`; each plan must have `blocks`
/// blocks a row and `lane_packs` packs a lane in `tier`.
struct Kernel {
  std::string run;
  Tier tier;
  int lane_packs;
  int blocks;

  void check(const Size& size, const Offsets& offsets, at::ScalarType dtype,
             const at::Device& device) const {
    const TuningInUse tuning(tuning_with(run));
    for (const RowFunction& function :
         row_functions(size.heads, size.queries, size.keys, dtype, device, offsets)) {
      const RowPlan plan = plan_of(function.direction, function.rows);
      INFO(run << ": " << function.name << " of " << describe(function.rows));
      REQUIRE(plan.tier == tier);
      REQUIRE(plan.lane_packs == lane_packs);
      REQUIRE(plan.blocks == blocks);
      check_row_function(function, plan);
    }
  }

  /// Rows of exactly so many packs: aligned ones, and the longest that touch no more wherever they
  /// start.
  void check_packs(int64_t packs, int64_t heads, int64_t queries, const at::Device& device) const {
    for (const at::ScalarType dtype : kDtypes) {
      const auto pack = static_cast<int64_t>(16 / c10::elementSize(dtype));
      check({heads, queries, packs * pack}, {}, dtype, device);
      check({heads, queries, (packs - 1) * pack + 1}, {.input = 1, .second = 1}, dtype, device);
    }
  }
};

std::string text_of(Tier tier, int threads, int lane_packs, int blocks) {
  return c10::str(warpfuse::to_string(tier), ' ', threads, ' ', lane_packs, ' ', blocks);
}

constexpr int kWarpLanePacks[] = {1, 2, 3, 4, 5, 6, 8};
constexpr int kBlockLanePacks[] = {1, 2, 4, 8};

}  // namespace

WARPFUSE_GPU_TEST("each kernel of the tier warp", "[kernels]") {
  for (const int lane_packs : kWarpLanePacks) {
    const int threads = 32 << lane_packs % 4;  // 64, 128, 256, 32, 64, 128, 32
    const Kernel kernel{text_of(Tier::warp, threads, lane_packs, 1), Tier::warp, lane_packs, 1};
    for (const int lanes : {1, 4, 32}) {
      kernel.check_packs(int64_t{lanes} * lane_packs, 3, 11, device);
    }
  }
}

WARPFUSE_GPU_TEST("each kernel of the tier block that keeps rows in registers", "[kernels]") {
  for (const int lane_packs : kBlockLanePacks) {
    for (const int threads : {32, 96, lane_packs == 8 ? 512 : 1024}) {
      const Kernel kernel{text_of(Tier::block, threads, lane_packs, 1), Tier::block, lane_packs, 1};
      kernel.check_packs(int64_t{threads} * lane_packs, 1, 3, device);
    }
    const Kernel kernel{text_of(Tier::block, 128, lane_packs, 1), Tier::block, lane_packs, 1};
    for (const at::ScalarType dtype : kDtypes) {
      kernel.check({3, 5, 1}, {}, dtype, device);  // all threads but one have nothing
      kernel.check({3, 5, 101}, {}, dtype, device);
    }
  }
}

WARPFUSE_GPU_TEST("rows in the shared memory of a block", "[kernels]") {
  const Kernel small{"block 64 0 1", Tier::block, 0, 1};
  for (const int64_t slots : {1, 2, 3, 4, 5, 6, 9, 17}) {  // copies come in four groups
    small.check_packs(slots * 64, 1, 3, device);
  }
  const Kernel large{"block 1024 0 1", Tier::block, 0, 1};
  large.check_packs(1024, 1, 3, device);
  if (row_limits().shared_bytes >= size_t{96} * 1024) {
    large.check_packs(int64_t{3} * 1024, 1, 3, device);
  }
  for (const at::ScalarType dtype : kDtypes) {
    large.check({3, 5, 1}, {}, dtype, device);
    large.check({1, 3, 777}, {}, dtype, device);
  }
}

WARPFUSE_GPU_TEST("rows that fill the shared memory of a block, and one pack more", "[kernels]") {
  const TuningInUse tuning(tuning_with("block 256 0 1"));
  for (const at::ScalarType dtype : kDtypes) {
    const auto pack = static_cast<int64_t>(16 / c10::elementSize(dtype));
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      const size_t pack_bytes = direction == Direction::forward ? 16 : 32;
      const auto packs = static_cast<int64_t>(row_limits().shared_bytes / (256 * pack_bytes) * 256);
      for (const RowFunction& function :
           row_functions(1, 2, packs * pack, dtype, device, Offsets{})) {
        if (function.direction == direction) {
          const RowPlan plan = plan_of(direction, function.rows);
          REQUIRE(plan.tier == Tier::block);
          REQUIRE(plan.shared_bytes == static_cast<size_t>(packs) * pack_bytes);
          check_row_function(function, plan);
        }
      }
      const at::Tensor longer = random_at(0, {1, 1, 2, packs * pack + 1}, dtype, device);
      CHECK(plan_of(direction, longer).shared_bytes <= row_limits().shared_bytes);
      for (const RowFunction& function :
           row_functions(1, 2, packs * pack + 1, dtype, device, Offsets{})) {
        check_row_function(function, plan_of(function.direction, function.rows));
      }
    }
  }
}

WARPFUSE_GPU_TEST("each kernel of the tier cluster", "[kernels]") {
  const int most = row_limits().cluster_blocks;
  if (most < 2) {
    skip_test(kNoClusters);
    return;
  }
  for (int blocks = 2; blocks <= most; blocks *= 2) {
    for (const int lane_packs : kBlockLanePacks) {
      const Kernel kernel{text_of(Tier::cluster, 64, lane_packs, blocks), Tier::cluster, lane_packs,
                          blocks};
      kernel.check_packs(int64_t{64} * lane_packs * blocks, 1, 3, device);
      for (const at::ScalarType dtype : kDtypes) {
        kernel.check({3, 5, 7}, {}, dtype, device);  // all blocks but one have nothing
      }
    }
    const Kernel shared{text_of(Tier::cluster, 128, 0, blocks), Tier::cluster, 0, blocks};
    for (const int64_t slots : {1, 3, 9}) {
      shared.check_packs(slots * 128 * blocks, 1, 3, device);
    }
    for (const at::ScalarType dtype : kDtypes) {
      shared.check({3, 5, 7}, {}, dtype, device);
    }
    const int threads = 1024;
    const Kernel large{text_of(Tier::cluster, threads, 0, blocks), Tier::cluster, 0, blocks};
    large.check({1, 2, int64_t{threads} * blocks * 4 + 33}, {}, at::kFloat, device);
  }
}

WARPFUSE_GPU_TEST("rows that are read twice, whole and in parts", "[kernels]") {
  for (const int threads : {32, 96, 1024}) {
    const Kernel whole{text_of(Tier::stream, threads, 0, 1), Tier::stream, 0, 1};
    for (const int64_t packs : {1, 4 * threads, 4 * threads + 1, 9 * threads + 5}) {
      whole.check_packs(packs, 1, 3, device);
    }
  }
  for (const int parts : {2, 3, 7, 32, 33, 64}) {  // 32 of them are added up at once
    const Kernel split{text_of(Tier::stream, 32, 0, parts), Tier::stream, 0, parts};
    split.check_packs(int64_t{parts} * 4 * 32, 1, 3, device);
    for (const at::ScalarType dtype : kDtypes) {
      const auto pack = static_cast<int64_t>(16 / c10::elementSize(dtype));
      split.check({2, 2, (int64_t{parts} * 4 * 32 - 31) * pack + 1}, {}, dtype, device);
    }
  }
}

WARPFUSE_GPU_TEST("a row is split into as many parts as fill the GPU", "[kernels]") {
  const TuningInUse tuning(tuning_with("stream 256 0 0"));
  for (const int64_t rows : {1, 3, 16}) {
    for (const RowFunction& function :
         row_functions(1, rows, 600'001, at::kHalf, device, Offsets{})) {
      const RowPlan plan = plan_of(function.direction, function.rows);
      CHECK(plan.blocks * rows >= std::min<int64_t>(row_limits().multiprocessors, rows * 70));
      check_row_function(function, plan);
    }
  }
}

WARPFUSE_GPU_TEST("a row of NaN, of infinities, and of one value, in every tier", "[kernels]") {
  for (const std::string& run : runs_of_all_tiers()) {
    const TuningInUse tuning(tuning_with(run));
    for (const at::ScalarType dtype : kDtypes) {
      for (const double value : {0.0, kNaN, kInf, -kInf, finfo_max(dtype), -finfo_max(dtype)}) {
        INFO(run << ", " << c10::toString(dtype) << ", rows of " << value);
        const at::Tensor x = at::full({2, 901}, value, at::TensorOptions(device).dtype(dtype));
        const Poison poison;
        CHECK(mismatch(warpfuse::softmax(x, -1), expected_softmax(x, -1)) == "");
        CHECK(mismatch(warpfuse::log_softmax(x, -1), expected_log_softmax(x, -1)) == "");
        CHECK(mismatch(masked_softmax(x, {.causal = "lower_right"}),
                       expected_scaled_masked_softmax(x, {.causal = "lower_right"})) == "");
      }
    }
  }
}
