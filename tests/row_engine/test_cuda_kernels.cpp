// Every kernel of the row engine that a table can ask for: as many packs a lane as each function is
// compiled for, in registers and in shared memory, with the next row on its way, in clusters of
// each size, split and in one piece; forward, backward, and with each kind of mask.

#include <rowwise/kernel_set.h>

#include <set>

#include "support/compare.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/pch.h"
#include "support/poison.h"
#include "support/row_functions.h"
#include "support/tuning_shapes.h"

namespace {

using warpfuse::Direction;
using warpfuse::kernel_set;
using warpfuse::KernelSet;
using warpfuse::LanePacks;
using warpfuse::row_kinds;
using warpfuse::RowKind;
using warpfuse::RowPlan;
using warpfuse::Tier;

/// Attention's scores [1, heads, queries, keys].
struct Size {
  int64_t heads, queries, keys;
};

/// What a table can ask for.
struct Kernel {
  Tier tier;
  int threads;
  int lane_packs;
  int blocks = 1;
  bool ahead = false;

  std::string text() const {
    return c10::str(warpfuse::to_string(tier), ' ', threads, ' ', lane_packs, ' ', blocks, ' ',
                    ahead ? 1 : 0);
  }

  /// Whether the function has it.
  bool is_of(const RowFunction& function) const {
    const KernelSet set = kernel_set(function.kind);
    return tier == Tier::stream ||
           (tier == Tier::warp ? set.warp : set.block_packs(ahead)).contains(lane_packs);
  }

  /// All row functions that have it, under a table that runs what it can so; each plan must be
  /// this.
  void check(const Size& size, const Offsets& offsets, at::ScalarType dtype,
             const at::Device& device) const {
    const TuningInUse tuning(tuning_with(text()));
    for (const RowFunction& function :
         row_functions(size.heads, size.queries, size.keys, dtype, device, offsets)) {
      if (!is_of(function)) {
        continue;
      }
      const RowPlan plan = plan_of(function);
      INFO(text() << ": " << function.name << " of " << describe(function.rows));
      REQUIRE(plan.tier == tier);
      REQUIRE(plan.threads == threads);
      REQUIRE((tier == Tier::warp || plan.lane_packs == lane_packs));
      REQUIRE(plan.blocks == blocks);
      REQUIRE(plan.ahead == ahead);
      check_row_function(function, plan);
    }
  }

  /// Rows of so many packs: aligned ones, and the longest that have no more wherever they start.
  void check_packs(int64_t packs, int64_t heads, int64_t queries, const at::Device& device) const {
    for (const at::ScalarType dtype : kDtypes) {
      const int64_t pack = pack_of(dtype);
      check({heads, queries, packs * pack}, {}, dtype, device);
      check({heads, queries, (packs + 1) * pack - 1}, {.input = 1, .second = 1}, dtype, device);
    }
  }
};

/// The packs a lane in registers that some function of row_functions() has such a kernel for.
std::vector<int> lane_packs_of(LanePacks KernelSet::* kernels) {
  LanePacks all;
  for (const auto& [direction, bytes] : kDirectionsAndBytes) {
    for (const RowKind& kind : row_kinds(direction, bytes)) {
      if (kind.plain || (kind.masked && !kind.dropout)) {
        all = all | kernel_set(kind).*kernels;
      }
    }
  }
  std::vector<int> numbers;
  for (int n = 1; n <= LanePacks::kMax; ++n) {
    if (all.contains(n)) {
      numbers.push_back(n);
    }
  }
  return numbers;
}

/// The powers of two from 2 to what the GPU and the table in use allow.
std::vector<int> cluster_sizes() {
  std::vector<int> sizes;
  for (int blocks = 2; blocks <= row_limits().cluster_blocks; blocks *= 2) {
    sizes.push_back(blocks);
  }
  return sizes;
}

}  // namespace

WARPFUSE_GPU_TEST("each kernel of the tier warp", "[kernels][portable]") {
  for (const int lane_packs : lane_packs_of(&KernelSet::warp)) {
    const int threads = 32 << lane_packs % 4;  // 64, 128, 256, 32, 64, 128, 32
    const Kernel kernel{Tier::warp, threads, lane_packs};
    std::set<int> ran;
    for (const int lanes : {1, 4, 16, 32}) {
      const int64_t packs = int64_t{lanes} * lane_packs;
      kernel.check_packs(packs, 3, 11, device);
      const TuningInUse tuning(tuning_with(kernel.text()));
      const at::Tensor x = at::empty({1, packs * 4}, at::TensorOptions(device));
      ran.insert(plan_of(Direction::forward, x).lane_packs);
    }
    CHECK(ran == std::set<int>{lane_packs});
    for (const at::ScalarType dtype : kDtypes) {
      kernel.check({3, 37, pack_of(dtype) - 1}, {}, dtype, device);  // edges alone
    }
  }
}

WARPFUSE_GPU_TEST("each kernel of the tier block that keeps rows in registers",
                  "[kernels][portable]") {
  for (const int lane_packs : lane_packs_of(&KernelSet::block)) {
    for (const int threads : {32, 96, lane_packs == 8 ? 256 : 1024}) {
      Kernel{Tier::block, threads, lane_packs}.check_packs(int64_t{threads} * lane_packs, 1, 3,
                                                           device);
    }
    for (const at::ScalarType dtype : kDtypes) {
      const Kernel kernel{Tier::block, 128, lane_packs};
      kernel.check({3, 5, 1}, {}, dtype, device);  // all threads but one have nothing
      kernel.check({3, 5, 101}, {}, dtype, device);
    }
  }
}

WARPFUSE_GPU_TEST("blocks that copy the next row while they have one in registers",
                  "[kernels][portable]") {
  for (const int lane_packs : lane_packs_of(&KernelSet::persistent)) {
    for (const int threads : {32, 96, 512}) {
      const Kernel kernel{Tier::block, threads, lane_packs, 1, true};
      if (size_t{32} * static_cast<size_t>(threads * lane_packs) > row_limits().shared_bytes) {
        continue;  // two inputs of this kernel's rows have no room in a small GPU's shared memory
      }
      kernel.check_packs(int64_t{threads} * lane_packs, 1, 3, device);
    }
    for (const at::ScalarType dtype : kDtypes) {
      Kernel{Tier::block, 64, lane_packs, 1, true}.check({3, 5, 3}, {}, dtype, device);
    }
  }
}

WARPFUSE_GPU_TEST("rows in the shared memory of a block", "[kernels][portable]") {
  for (const bool ahead : {false, true}) {
    const Kernel small{Tier::block, 64, 0, 1, ahead};
    for (const int64_t slots : {1, 2, 3, 4, 5, 6, 9, 16, 17, 33}) {  // four at once, in four groups
      small.check_packs(slots * 64, 1, 3, device);
      small.check_packs(slots * 64 - 40, 1, 3, device);
    }
    const Kernel large{Tier::block, 512, 0, 1, ahead};
    large.check_packs(512, 1, 3, device);
    if (row_limits().shared_bytes >= size_t{112} * 1024) {  // a row may begin within a slot
      large.check_packs(int64_t{6} * 512, 1, 3, device);
    }
    for (const at::ScalarType dtype : kDtypes) {
      large.check({3, 5, 1}, {}, dtype, device);
      large.check({1, 3, 777}, {}, dtype, device);
    }
  }
}

WARPFUSE_GPU_TEST("rows that fill the shared memory of a block, and one pack more",
                  "[kernels][portable]") {
  const TuningInUse tuning(tuning_with("block 256 0 1 1"));
  for (const at::ScalarType dtype : kDtypes) {
    const int64_t pack = pack_of(dtype);
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      const size_t pack_bytes = direction == Direction::forward ? 16 : 32;
      const auto packs = static_cast<int64_t>(row_limits().shared_bytes / (256 * pack_bytes) * 256);
      for (const RowFunction& function : row_functions(1, 2, packs * pack, dtype, device, {})) {
        if (function.kind.direction == direction &&
            Kernel{Tier::block, 256, 0, 1, true}.is_of(function)) {
          const RowPlan plan = plan_of(function);
          REQUIRE(plan.tier == Tier::block);
          REQUIRE(plan.shared_bytes == static_cast<size_t>(packs) * pack_bytes);
          check_row_function(function, plan);
        }
      }
      for (const RowFunction& function :
           row_functions(1, 2, (packs + 1) * pack, dtype, device, {})) {
        check_row_function(function, plan_of(function));
      }
    }
  }
}

WARPFUSE_GPU_TEST("each kernel of the tier cluster", "[kernels][portable]") {
  if (cluster_sizes().empty()) {
    skip_test(kNoClusters);
    return;
  }
  for (const int blocks : cluster_sizes()) {
    for (const bool ahead : {false, true}) {
      for (const int lane_packs :
           lane_packs_of(ahead ? &KernelSet::persistent : &KernelSet::block)) {
        const Kernel kernel{Tier::cluster, 64, lane_packs, blocks, ahead};
        kernel.check_packs(int64_t{64} * lane_packs * blocks, 1, 3, device);
        for (const at::ScalarType dtype : kDtypes) {
          kernel.check({3, 5, 19}, {}, dtype, device);  // all blocks but one have nothing
        }
      }
      const Kernel shared{Tier::cluster, 128, 0, blocks, ahead};
      for (const int64_t slots : {1, 3, 9}) {
        shared.check_packs(slots * 128 * blocks, 1, 3, device);
      }
      for (const at::ScalarType dtype : kDtypes) {
        shared.check({3, 5, 19}, {}, dtype, device);
      }
    }
    const Kernel large{Tier::cluster, 512, 0, blocks, true};
    large.check({1, 2, int64_t{512} * blocks * 8 + 33}, {}, at::kFloat, device);
  }
}

WARPFUSE_GPU_TEST("blocks and clusters that stay for many rows", "[kernels][portable]") {
  std::vector<Kernel> kernels = {{Tier::block, 64, 8, 1, true},
                                 {Tier::block, 256, 4, 1, true},
                                 {Tier::block, 128, 0, 1, true}};
  for (const int blocks : cluster_sizes()) {
    kernels.push_back({Tier::cluster, 128, 4, blocks, true});
    kernels.push_back({Tier::cluster, 64, 8, blocks, true});
    kernels.push_back({Tier::cluster, 64, 0, blocks, true});
  }
  for (const Kernel& kernel : kernels) {
    const TuningInUse tuning(tuning_with(kernel.text()));
    for (const at::ScalarType dtype : {at::kFloat, at::kHalf}) {
      // Rows of every alignment; some end in another slot than their neighbours.
      const int64_t keys = int64_t{kernel.threads} * kernel.blocks *
                               (kernel.lane_packs > 0 ? kernel.lane_packs : 5) * pack_of(dtype) -
                           3;
      const int64_t queries = 2600 / kernel.blocks;  // twice that is more than run at once
      for (const RowFunction& function : row_functions(2, queries, keys, dtype, device, {})) {
        if (!kernel.is_of(function)) {
          continue;
        }
        const RowPlan plan = plan_of(function);
        INFO(function.name << " of " << describe(function.rows) << ", " << plan.to_string());
        REQUIRE(plan.ahead);
        const auto launches = launches_during(function.run);
        CHECK(launches[0]["grid"].get<int64_t>() < 2 * queries * kernel.blocks);
        check_row_function(function, plan);
      }
    }
  }
}

WARPFUSE_GPU_TEST("rows that are read twice, whole and in parts", "[kernels][portable]") {
  for (const int threads : {32, 96, 512}) {
    const Kernel whole{Tier::stream, threads, 0};
    for (const int64_t packs : {1, 4 * threads, 4 * threads + 1, 9 * threads + 5}) {
      whole.check_packs(packs, 1, 3, device);
    }
  }
  for (const int parts : {2, 3, 7, 32, 33, 64}) {  // more and fewer than threads that add them up
    const Kernel split{Tier::stream, 32, 0, parts};
    split.check_packs(int64_t{parts} * 4 * 32, 1, 3, device);
    for (const at::ScalarType dtype : kDtypes) {
      split.check({2, 2, (int64_t{parts} * 4 * 32 - 31) * pack_of(dtype) + 1}, {}, dtype, device);
    }
  }
}

WARPFUSE_GPU_TEST("a row is split into as many parts as fill the GPU", "[kernels][portable]") {
  const TuningInUse tuning(tuning_with("stream 256 0 0 0"));
  for (const int64_t rows : {1, 3, 16}) {
    for (const RowFunction& function : row_functions(1, rows, 600'001, at::kHalf, device, {})) {
      const RowPlan plan = plan_of(function);
      CHECK(plan.blocks * rows >= std::min<int64_t>(row_limits().multiprocessors, rows * 70));
      check_row_function(function, plan);
    }
  }
}
