// The table that decides the tier of a row: data, which can be checked without a GPU.

#include <rowwise/tuning.h>

#include "support/pch.h"

namespace {

using warpfuse::plan_rows;
using warpfuse::plan_tier;
using warpfuse::RowPlan;
using warpfuse::RowShape;
using warpfuse::RowTuning;
using warpfuse::Tier;

constexpr size_t kSharedOf9_0 = 227 * 1024;  // bytes a block
constexpr size_t kSharedOf8_6 = 99 * 1024;

/// Whether the plan has room for each pack of the row.
bool covers(const RowPlan& plan, const RowShape& shape) {
  switch (plan.tier) {
    case Tier::warp:
      return plan.lanes <= 32 && plan.lane_packs >= 1 && plan.threads % plan.lanes == 0 &&
             int64_t{plan.lanes} * plan.lane_packs >= shape.packs;
    case Tier::block:
      return plan.lane_packs > 0 ? int64_t{plan.threads} * plan.lane_packs >= shape.packs
                                 : plan.shared_bytes >= shape.packs * shape.cached_bytes;
    default:
      return plan.tier == Tier::stream;
  }
}

}  // namespace

TEST_CASE("every row has a plan that holds it, within the device's limits", "[tuning]") {
  for (const size_t shared : {kSharedOf9_0, kSharedOf8_6, size_t{48} * 1024}) {
    for (const size_t cached : {size_t{16}, size_t{32}, size_t{64}}) {
      Tier before = Tier::warp;
      for (int64_t packs = 1; packs < 40'000; packs += 1 + packs / 64) {
        const RowShape shape{packs, cached};
        const RowPlan plan = plan_rows(shape, shared, RowTuning{});
        INFO(packs << " packs of " << cached << " bytes, " << shared
                   << " bytes shared: " << plan.to_string());
        CHECK(covers(plan, shape));
        CHECK(plan.shared_bytes <= shared);
        CHECK(plan.threads <= 1024);
        CHECK(plan.threads % 32 == 0);
        CHECK(plan.tier >= before);  // longer rows never come back to a smaller tier
        before = plan.tier;
      }
      CHECK(before == Tier::stream);
    }
  }
}

TEST_CASE("a device with less shared memory streams shorter rows", "[tuning]") {
  const RowShape shape{6000, 32};  // 187 KB
  CHECK(plan_rows(shape, kSharedOf9_0, RowTuning{}).tier == Tier::block);
  CHECK(plan_rows(shape, kSharedOf8_6, RowTuning{}).tier == Tier::stream);
}

TEST_CASE("another tuning moves the borders", "[tuning]") {
  const RowShape shape{200, 16};
  CHECK(plan_rows(shape, kSharedOf9_0, RowTuning{}).tier == Tier::warp);
  RowTuning shorter;
  shorter.warp_lane_packs = 2;
  CHECK_FALSE(shorter == RowTuning{});
  CHECK(plan_rows(shape, kSharedOf9_0, shorter).tier == Tier::block);
}

TEST_CASE("a tier by name refuses what it cannot hold", "[tuning]") {
  RowPlan plan{};
  CHECK(plan_tier(Tier::warp, {1, 16}, kSharedOf9_0, RowTuning{}, &plan));
  CHECK_FALSE(plan_tier(Tier::warp, {100'000, 16}, kSharedOf9_0, RowTuning{}, &plan));
  CHECK_FALSE(plan_tier(Tier::block, {100'000, 16}, kSharedOf9_0, RowTuning{}, &plan));
  CHECK(plan_tier(Tier::stream, {100'000, 16}, kSharedOf9_0, RowTuning{}, &plan));
}

TEST_CASE("the packs that an unaligned row touches", "[tuning]") {
  CHECK(warpfuse::packs_of_row(8, 4, true) == 2);
  CHECK(warpfuse::packs_of_row(9, 4, true) == 3);
  CHECK(warpfuse::packs_of_row(8, 4, false) == 3);  // 1 + 4 + 3 elements
  CHECK(warpfuse::packs_of_row(1, 8, false) == 1);
  CHECK(warpfuse::packs_of_row(2, 8, false) == 2);
}
