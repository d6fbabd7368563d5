// The plans that the tuning table makes of shapes: decided without a GPU, and checked without one.

#include <rowwise/tuning.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <set>

#include "support/pch.h"
#include "support/row_engine.h"

namespace {

using warpfuse::default_tuning;
using warpfuse::Direction;
using warpfuse::parse_tuning;
using warpfuse::plan_rows;
using warpfuse::plan_tier;
using warpfuse::RowLimits;
using warpfuse::RowPlan;
using warpfuse::RowShape;
using warpfuse::Tier;
using warpfuse::Tuning;
using warpfuse::TuningEntry;

constexpr RowLimits kHopper{size_t{228} * 1024, 16, 132};
constexpr RowLimits kAmpere{size_t{99} * 1024, 1, 84};  // 8.6
constexpr RowLimits kLeast{size_t{48} * 1024, 1, 1};
constexpr int64_t kAny = std::numeric_limits<int64_t>::max();

RowShape shape_of(Direction direction, int bytes, int64_t packs, int64_t rows) {
  return {direction, bytes, packs, rows, direction == Direction::forward ? 16U : 32U};
}

/// What is wrong with the plan of a shape; empty when all of the row has its place.
std::string fault(const RowPlan& plan, const RowShape& shape, const RowLimits& limits) {
  const int64_t threads = int64_t{plan.threads} * plan.blocks;
  const int64_t slots = (shape.packs + threads - 1) / threads;
  if (plan.threads < 32 || plan.threads > 1024 || plan.threads % 32 != 0) {
    return "threads";
  }
  if (plan.shared_bytes > limits.shared_bytes) {
    return "more shared memory than there is";
  }
  switch (plan.tier) {
    case Tier::warp:
      return !std::has_single_bit(unsigned(plan.lanes)) || plan.lanes > 32 ? "lanes"
             : plan.threads > 256 || plan.blocks != 1                      ? "size"
             : int64_t{plan.lanes} * plan.lane_packs < shape.packs         ? "the row does not fit"
                                                                           : "";
    case Tier::block:
    case Tier::cluster:
      if (plan.tier == Tier::block ? plan.blocks != 1
                                   : plan.blocks < 2 || plan.blocks > limits.cluster_blocks) {
        return "blocks";
      }
      if (plan.lane_packs > 0) {
        return plan.lane_packs < slots                     ? "the row does not fit"
               : plan.lane_packs > 4 && plan.threads > 512 ? "more registers than there are"
               : plan.shared_bytes > 0                     ? "shared memory for nothing"
                                                           : "";
      }
      return plan.shared_bytes < static_cast<size_t>(slots * plan.threads) * shape.pack_bytes
                 ? "the row does not fit"
                 : "";
    case Tier::stream:
      return plan.blocks < 1                                  ? "blocks"
             : plan.lane_packs != 0 || plan.shared_bytes != 0 ? "a place for nothing"
             : plan.blocks > 1 &&
                     shape.rows * plan.blocks * warpfuse::kSplitPartBytes > warpfuse::kSplitBytes
                 ? "more parts than allowed"
                 : "";
    default:
      return "tier";
  }
}

/// Packs around every border of a table, and many between.
std::set<int64_t> interesting_packs(const Tuning& tuning) {
  std::set<int64_t> packs;
  for (int64_t n = 1; n < int64_t{1} << 33; n += 1 + n / 16) {
    packs.insert(n);
  }
  for (const TuningEntry& entry : tuning.entries) {
    if (entry.packs != kAny) {
      packs.insert({std::max<int64_t>(1, entry.packs - 1), entry.packs, entry.packs + 1});
    }
  }
  return packs;
}

}  // namespace

TEST_CASE("every shape has a plan that holds it, within the limits of each device", "[tuning]") {
  const Tuning tuning = default_tuning();
  int64_t plans = 0;
  for (const RowLimits& limits : {kHopper, kAmpere, kLeast}) {
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      for (const int bytes : {2, 4, 8}) {
        for (const int64_t rows :
             {int64_t{1}, int64_t{2}, int64_t{16}, int64_t{131}, int64_t{5000}, int64_t{1} << 33}) {
          for (const int64_t packs : interesting_packs(tuning)) {
            const RowShape shape = shape_of(direction, bytes, packs, rows);
            const RowPlan plan = plan_rows(shape, limits, tuning);
            ++plans;
            if (const std::string text = fault(plan, shape, limits); !text.empty()) {
              FAIL_CHECK(text << ": " << packs << " packs of " << bytes << "-byte elements, "
                              << rows << " rows, " << limits.shared_bytes
                              << " bytes shared: " << plan.to_string());
            }
          }
        }
      }
    }
  }
  CHECK(plans > 10'000);
}

TEST_CASE("the library's table uses what a large GPU has", "[tuning]") {
  const Tuning tuning = default_tuning();
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    for (const int bytes : {2, 4, 8}) {
      std::set<std::string> tiers;
      for (const int64_t packs : interesting_packs(tuning)) {
        const RowShape shape = shape_of(direction, bytes, packs, 1000);
        tiers.insert(warpfuse::to_string(plan_rows(shape, kHopper, tuning).tier));
      }
      CHECK(tiers == std::set<std::string>{"warp", "block", "cluster", "stream"});
    }
  }
}

TEST_CASE("few long rows are split over all multiprocessors", "[tuning]") {
  const Tuning tuning = default_tuning();
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    for (const int bytes : {2, 4, 8}) {
      for (const int64_t rows : {1, 2, 3, 16, 100, 131}) {
        const RowShape shape = shape_of(direction, bytes, int64_t{1} << 22, rows);
        for (const RowLimits& limits : {kHopper, kAmpere}) {
          const RowPlan plan = plan_rows(shape, limits, tuning);
          INFO(rows << " rows: " << plan.to_string());
          CHECK(plan.tier == Tier::stream);
          CHECK(rows * plan.blocks >= limits.multiprocessors);
          CHECK(rows * plan.blocks * warpfuse::kSplitPartBytes <= warpfuse::kSplitBytes);
        }
      }
      // Rows enough for every multiprocessor stay in one piece.
      CHECK(plan_rows(shape_of(direction, bytes, int64_t{1} << 22, 5000), kHopper, tuning).blocks ==
            1);
    }
  }
}

TEST_CASE("the first entry that fits shape and device is taken", "[tuning]") {
  const Tuning tuning = parse_tuning(std::string(R"(
forward 4 100 *    warp    128 8 1
forward 4 *   10   cluster 256 0 8
forward 4 500 1000 block   256 2 1
forward 4 *   *    block   256 0 1)") +
                                     kLastEntries);
  const auto tier = [&](int64_t packs, int64_t rows, const RowLimits& limits = kHopper) {
    return plan_rows(shape_of(Direction::forward, 4, packs, rows), limits, tuning).tier;
  };
  CHECK(tier(100, 5) == Tier::warp);
  CHECK(tier(101, 5) == Tier::cluster);
  CHECK(tier(101, 5, kAmpere) == Tier::block);
  CHECK(tier(101, 11) == Tier::block);
  const auto plan = [&](int64_t packs, int64_t rows) {
    return plan_rows(shape_of(Direction::forward, 4, packs, rows), kHopper, tuning);
  };
  CHECK(plan(500, 1000) == RowPlan{Tier::block, 32, 2, 256, 1, 0});
  CHECK(plan(500, 1001) == RowPlan{Tier::block, 32, 0, 256, 1, size_t{2} * 256 * 16});
  CHECK(plan(501, 1000) == RowPlan{Tier::block, 32, 0, 256, 1, size_t{2} * 256 * 16});
  CHECK(tier(14'592, 11) == Tier::block);  // 228 KB, and one pack more
  CHECK(tier(14'593, 11) == Tier::stream);
  CHECK(plan_rows(shape_of(Direction::backward, 4, 100, 5), kHopper, tuning).tier == Tier::stream);
}

TEST_CASE("the table's limits lower the device's", "[tuning]") {
  const std::string entries =
      std::string("forward 4 * * cluster 256 0 8\nforward 4 * * block 256 0 1") + kLastEntries;
  const RowShape shape = shape_of(Direction::forward, 4, 6000, 100);  // 94 KB
  const auto tier = [&](const std::string& limits, const RowLimits& device = kHopper) {
    return plan_rows(shape, device, parse_tuning(limits + entries)).tier;
  };
  CHECK(tier("") == Tier::cluster);
  CHECK(tier("limit cluster_blocks 8\n") == Tier::cluster);
  CHECK(tier("limit cluster_blocks 4\n") == Tier::block);
  CHECK(tier("limit cluster_blocks 1\nlimit shared_bytes 101376\n") == Tier::block);
  CHECK(tier("limit cluster_blocks 1\nlimit shared_bytes 49152\n") == Tier::stream);
  // They do not raise them.
  CHECK(tier("limit cluster_blocks 16\nlimit shared_bytes 999999\n", kAmpere) == Tier::block);
  CHECK(tier("limit cluster_blocks 16\nlimit shared_bytes 999999\n", kLeast) == Tier::stream);
}

TEST_CASE("lanes of a warp and packs of a lane", "[tuning]") {
  const Tuning tuning = parse_tuning(std::string("forward 4 * * warp 128 5 1") + kLastEntries);
  const auto plan = [&](int64_t packs) {
    return plan_rows(shape_of(Direction::forward, 4, packs, 100), kHopper, tuning);
  };
  CHECK(plan(1) == RowPlan{Tier::warp, 1, 1, 128, 1, 0});
  CHECK(plan(5) == RowPlan{Tier::warp, 1, 5, 128, 1, 0});
  CHECK(plan(6) == RowPlan{Tier::warp, 2, 3, 128, 1, 0});
  CHECK(plan(11) == RowPlan{Tier::warp, 4, 3, 128, 1, 0});
  CHECK(plan(160) == RowPlan{Tier::warp, 32, 5, 128, 1, 0});
  CHECK(plan(224) == RowPlan{Tier::warp, 32, 8, 128, 1, 0});  // no kernel has 7
  CHECK(plan(256) == RowPlan{Tier::warp, 32, 8, 128, 1, 0});
  CHECK(plan(257).tier == Tier::stream);
}

TEST_CASE("a tier by name takes what one of its entries can hold", "[tuning]") {
  const Tuning tuning = default_tuning();
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    for (const int bytes : {2, 4, 8}) {
      for (const int64_t packs : interesting_packs(tuning)) {
        const RowShape shape = shape_of(direction, bytes, packs, 7);
        const RowPlan usual = plan_rows(shape, kHopper, tuning);
        RowPlan plan{};
        for (const Tier tier : {Tier::warp, Tier::block, Tier::cluster, Tier::stream}) {
          if (!plan_tier(tier, shape, kHopper, tuning, &plan)) {
            CHECK((tier == Tier::block || tier == Tier::cluster));
            CHECK(usual.tier != tier);
            continue;
          }
          CHECK(plan.tier == tier);
          if (tier != Tier::warp || plan.lane_packs > 0) {  // else it reads its row twice
            CHECK(fault(plan, shape, kHopper) == "");
          }
          CHECK_FALSE((tier == Tier::cluster && plan_tier(tier, shape, kAmpere, tuning, &plan)));
        }
        CHECK_FALSE(plan_tier(Tier::column, shape, kHopper, tuning, &plan));
      }
    }
  }
}

TEST_CASE("the packs that a row touches", "[tuning]") {
  for (const int pack : {2, 4, 8}) {
    for (int64_t columns = 1; columns < 50; ++columns) {
      int64_t most = 0;
      for (int64_t start = 0; start < pack; ++start) {
        most = std::max(most, (start + columns - 1) / pack + 1);
      }
      CHECK(warpfuse::packs_of_row(columns, pack, false) == most);
      CHECK(warpfuse::packs_of_row(columns, pack, true) == (columns - 1) / pack + 1);
    }
  }
}
