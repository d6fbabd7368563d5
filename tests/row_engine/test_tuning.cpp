// The plans that the tuning table makes of shapes: decided without a GPU, and checked without one.

#include <rowwise/tuning.h>

#include <set>

#include "row_engine/plan_faults.h"
#include "support/pch.h"
#include "support/row_engine.h"
#include "support/tuning_shapes.h"

namespace {

using warpfuse::default_tuning;
using warpfuse::Direction;
using warpfuse::parse_tuning;
using warpfuse::plan_rows;
using warpfuse::plan_tier;
using warpfuse::row_kinds;
using warpfuse::RowKind;
using warpfuse::RowLimits;
using warpfuse::RowPlan;
using warpfuse::RowShape;
using warpfuse::Tier;
using warpfuse::Tuning;

RowShape shape_of(Direction direction, int bytes, int64_t packs, int64_t rows, int64_t edges = 0,
                  int64_t shift = 0) {
  return {row_kind(direction, bytes), packs, edges, rows, false, shift};
}

}  // namespace

TEST_CASE("every shape has a plan that holds it, within the limits of each device", "[tuning]") {
  const Tuning tuning = default_tuning();
  const std::set<int64_t> some_packs = interesting_packs(tuning);
  int64_t plans = 0;
  for (const RowLimits& limits : {kHopper, kAmpere, kLeast}) {
    for (const auto& [direction, bytes] : kDirectionsAndBytes) {
      for (const int64_t rows :
           {int64_t{1}, int64_t{2}, int64_t{16}, int64_t{131}, int64_t{5000}, int64_t{1} << 33}) {
        for (const int64_t packs : some_packs) {
          const int64_t most_edges = int64_t{2} * (16 / bytes - 1);
          for (const int64_t edges : {int64_t{0}, int64_t{1}, most_edges}) {
            for (const int64_t shift : {int64_t{0}, int64_t{7}}) {
              RowShape shape = shape_of(direction, bytes, packs, rows, edges, shift);
              for (const RowKind& kind : row_kinds(direction, bytes)) {
                shape.kind = kind;
                shape.span = kind.masked && !kind.dropout && edges == 0;
                const RowPlan plan = plan_rows(shape, limits, tuning);
                ++plans;
                if (const std::string text = fault(plan, shape, limits); !text.empty()) {
                  FAIL_CHECK(text << ": " << packs << " packs of " << bytes << "-byte elements, "
                                  << edges << " edges, " << shift << " packs into a line, " << rows
                                  << " rows, " << limits.shared_bytes
                                  << " bytes shared: " << plan.to_string());
                }
              }
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
  std::set<std::string> tiers;
  for (const auto& [direction, bytes] : kDirectionsAndBytes) {
    std::set<std::string> of_kind;
    for (const int64_t packs : interesting_packs(tuning)) {
      const RowShape shape = shape_of(direction, bytes, packs, 1000);
      of_kind.insert(warpfuse::to_string(plan_rows(shape, kHopper, tuning).tier));
    }
    CHECK(of_kind.count("block") + of_kind.count("cluster") + of_kind.count("stream") == 3);
    tiers.merge(of_kind);
  }
  CHECK(tiers == std::set<std::string>{"warp", "block", "cluster", "stream"});
}

TEST_CASE("rows of one span are taken by their tier alone, in warps or blocks", "[tuning]") {
  const Tuning tuning = parse_tuning(
      std::string("backward 2 100 * span 64 4 1 0\nbackward 2 * * span 96 8 1 0") + kLastEntries);
  const auto plan = [&](int64_t packs, bool span) {
    RowShape shape{attention_kind(Direction::backward, 2), packs, 0, 1000};
    shape.span = span;
    return plan_rows(shape, kLeast, tuning);
  };
  CHECK((plan(100, true) == RowPlan{Tier::span, 32, 4, 64, 1, false, 0}));
  CHECK((plan(101, true) == RowPlan{Tier::span, 32, 8, 96, 1, false, 0}));
  CHECK((plan(256, true) == RowPlan{Tier::span, 32, 8, 96, 1, false, 0}));
  CHECK((plan(257, true) == RowPlan{Tier::span, 96, 8, 96, 1, false, 0}));
  CHECK((plan(768, true) == RowPlan{Tier::span, 96, 8, 96, 1, false, 0}));
  CHECK(plan(769, true).tier == Tier::stream);
  CHECK(plan(100, false).tier == Tier::stream);
  // The library's table: attention of 1024 keys and more.
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    for (const int bytes : {2, 4}) {
      RowShape shape{attention_kind(direction, bytes), int64_t{64} * bytes, 0, int64_t{96} * 1024};
      CHECK(plan_rows(shape, kHopper, default_tuning()).tier != Tier::span);
      shape.span = true;
      CHECK(plan_rows(shape, kHopper, default_tuning()).tier == Tier::span);
    }
  }
}

TEST_CASE("few long rows are split over all multiprocessors", "[tuning]") {
  const Tuning tuning = default_tuning();
  for (const auto& [direction, bytes] : kDirectionsAndBytes) {
    for (const int64_t rows : {1, 2, 3, 16, 100, 131}) {
      const RowShape shape = shape_of(direction, bytes, int64_t{1} << 22, rows);
      for (const RowLimits& limits : {kHopper, kAmpere, kLeast}) {
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

TEST_CASE("few long rows stay in shared memory where all multiprocessors have room", "[tuning]") {
  const Tuning tuning = default_tuning();
  const auto plan = [&](Direction direction, int64_t packs, int64_t rows,
                        const RowLimits& limits = kHopper) {
    return plan_rows(shape_of(direction, 2, packs, rows), limits, tuning);
  };
  const auto resident = [&](int blocks, int64_t slots, size_t pack_bytes) {
    return RowPlan{
        Tier::stream, 32, 0, 512, blocks, true, static_cast<size_t>(slots * 512) * pack_bytes};
  };
  // 16 x 1,000,003: 8 blocks a row; the backward's two inputs have room for 14 slots of 31.
  CHECK((plan(Direction::forward, 125'000, 16) == resident(8, 28, 16)));
  CHECK((plan(Direction::backward, 125'000, 16) == resident(8, 14, 32)));
  CHECK((plan(Direction::forward, 2'097'157, 1) == resident(132, 28, 16)));
  CHECK((plan(Direction::forward, int64_t{132} * 5000, 1) == resident(132, 10, 16)));
  // Too short for a barrier, too long to keep much of, too many rows, too few of them for all
  // blocks.
  CHECK_FALSE(plan(Direction::forward, int64_t{132} * 1500, 1).ahead);
  CHECK_FALSE(plan(Direction::forward, int64_t{132} * 60'000, 1).ahead);
  CHECK_FALSE(plan(Direction::forward, 1'000'000, 67).ahead);
  CHECK_FALSE(plan(Direction::forward, 70'000, 50).ahead);
  CHECK_FALSE(plan(Direction::forward, 125'000, 16, {kHopper.shared_bytes, 16, 132, false}).ahead);
  // A GPU with less shared memory keeps less.
  CHECK(plan(Direction::forward, int64_t{84} * 15'000, 1, kAmpere).shared_bytes ==
        size_t{12} * 512 * 16);
}

TEST_CASE("the first entry that fits shape and device is taken", "[tuning]") {
  const Tuning tuning = parse_tuning(std::string(R"(
forward 4 100 *    warp    128 4 1 0
forward 4 *   10   cluster 256 0 8 1
forward 4 500 1000 block   256 2 1 0
forward 4 *   *    block   256 0 1 1)") +
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
  CHECK((plan(500, 1000) == RowPlan{Tier::block, 32, 2, 256, 1, false, 0}));
  CHECK((plan(500, 1001) == RowPlan{Tier::block, 32, 0, 256, 1, true, size_t{2} * 256 * 16}));
  CHECK((plan(501, 1000) == RowPlan{Tier::block, 32, 0, 256, 1, true, size_t{2} * 256 * 16}));
  CHECK(tier(14'592, 11) == Tier::block);  // 228 KB, and one pack more
  CHECK(tier(14'593, 11) == Tier::stream);
  CHECK(plan_rows(shape_of(Direction::backward, 4, 100, 5), kHopper, tuning).tier == Tier::stream);
}

TEST_CASE("the table's limits lower the device's", "[tuning]") {
  const std::string entries =
      std::string("forward 4 * * cluster 256 0 8 1\nforward 4 * * block 256 0 1 1") + kLastEntries;
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
  const Tuning tuning = parse_tuning(std::string("forward 4 * * warp 128 5 1 0") + kLastEntries);
  const auto plan = [&](int64_t packs, int64_t edges = 0) {
    RowShape shape = shape_of(Direction::forward, 4, packs, 100, edges);
    shape.kind = {Direction::forward, 4, false, false, true};  // 1 to 6 and 8 packs per lane
    return plan_rows(shape, kHopper, tuning);
  };
  const auto is = [](const RowPlan& got, int lanes, int lane_packs) {
    return got == RowPlan{Tier::warp, lanes, lane_packs, 128, 1, false, 0};
  };
  CHECK(is(plan(1), 1, 1));
  CHECK(is(plan(5), 1, 5));
  CHECK(is(plan(6), 2, 3));
  CHECK(is(plan(11), 4, 3));
  CHECK(is(plan(160), 32, 5));
  CHECK(is(plan(224), 32, 8));  // no kernel has 7
  CHECK(is(plan(256), 32, 8));
  CHECK(plan(257).tier == Tier::stream);
  // Every edge has a lane.
  CHECK(is(plan(0, 1), 1, 1));
  CHECK(is(plan(0, 3), 4, 1));
  CHECK(is(plan(1, 6), 8, 1));
  CHECK(is(plan(16, 6), 8, 2));
  CHECK(is(plan(160, 6), 32, 5));
}

TEST_CASE("lines for dropout are for functions that draw random numbers alone", "[tuning]") {
  const Tuning tuning = parse_tuning(std::string("forward_dropout 4 100 * warp 128 8 1 0\n"
                                                 "forward 4 100 * block 128 1 1 0") +
                                     kLastEntries);
  RowShape shape = shape_of(Direction::forward, 4, 100, 1000);
  CHECK(plan_rows(shape, kHopper, tuning).tier == Tier::block);
  shape.kind = {Direction::forward, 4, false, false, true};
  CHECK(plan_rows(shape, kHopper, tuning).tier == Tier::warp);
  shape.packs = 101;
  CHECK(plan_rows(shape, kHopper, tuning).tier == Tier::stream);
  RowPlan plan{};
  shape.packs = 100;
  CHECK(plan_tier(Tier::warp, shape, kHopper, tuning, &plan));
  CHECK(plan.threads == 128);
}

TEST_CASE("a tier by name takes what one of its entries can hold", "[tuning]") {
  const Tuning tuning = default_tuning();
  for (const auto& [direction, bytes] : kDirectionsAndBytes) {
    for (const int64_t packs : interesting_packs(tuning)) {
      const RowShape shape = shape_of(direction, bytes, packs, 7);
      const RowPlan usual = plan_rows(shape, kHopper, tuning);
      RowPlan plan{};
      for (const Tier tier : {Tier::warp, Tier::block, Tier::cluster, Tier::stream}) {
        if (!plan_tier(tier, shape, kHopper, tuning, &plan)) {
          CHECK(tier != Tier::stream);
          CHECK((tier != Tier::warp || bytes == 8 || direction == Direction::backward));
          CHECK(usual.tier != tier);
          continue;
        }
        CHECK(plan.tier == tier);
        if (tier != Tier::warp || plan.lane_packs > 0) {  // else it reads its row twice
          CHECK(fault(plan, shape, kHopper) == "");
        }
        CHECK_FALSE((tier == Tier::cluster && plan_tier(tier, shape, kAmpere, tuning, &plan)));
      }
      CHECK_FALSE(plan_tier(Tier::naive, shape, kHopper, tuning, &plan));
    }
  }
}
