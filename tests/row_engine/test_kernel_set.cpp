// Which kernels row functions are compiled with: those that the library's table or an algorithm's
// name can launch, no fewer and no more.

#include <rowwise/kernel_set.h>

#include <sstream>

#include "support/pch.h"
#include "support/row_engine.h"
#include "support/tuning_shapes.h"

namespace {

using warpfuse::Direction;
using warpfuse::kernel_set;
using warpfuse::KernelSet;
using warpfuse::LanePacks;
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

std::vector<RowKind> kinds() {
  std::vector<RowKind> all;
  for (const auto& [direction, bytes] : kDirectionsAndBytes) {
    for (const RowKind& kind : row_kinds(direction, bytes)) {
      // Dropout first is a kind of its own in the forward of half precision alone.
      if (kind.plain || kind.masked || kind.dropout ||
          (direction == Direction::forward && bytes == 2)) {
        all.push_back(kind);
      }
    }
  }
  return all;
}

RowShape shape_of(const RowKind& kind, int64_t packs, int64_t rows) {
  return {kind, packs, 0, rows};
}

/// The kernel of a plan joins the others.
void add(const RowPlan& plan, KernelSet& kernels) {
  kernels.cooperative |= plan.tier == Tier::stream && plan.ahead;
  kernels.chunk |= plan.tier == Tier::chunk;
  if ((plan.tier == Tier::block || plan.tier == Tier::cluster) && plan.lane_packs == 0) {
    kernels.shared = true;
    return;
  }
  LanePacks* const packs = plan.tier == Tier::warp ? &kernels.warp
                           : plan.tier == Tier::span
                               ? plan.lanes == 32 ? &kernels.span_warp : &kernels.span_block
                           : plan.tier == Tier::stream || plan.tier == Tier::chunk ? nullptr
                           : plan.ahead ? &kernels.persistent
                                        : &kernels.block;
  if (packs != nullptr) {
    *packs = *packs | LanePacks{plan.lane_packs};
  }
}

/// Those of all plans for a kind of rows, by the table and by names.
KernelSet launched(const RowKind& kind, const Tuning& tuning) {
  KernelSet kernels;
  std::set<int64_t> some_rows = {1, 1000};
  for (const warpfuse::TuningEntry& entry : tuning.entries) {
    if (entry.rows != kAny) {
      some_rows.insert({entry.rows, entry.rows + 1});
    }
  }
  const std::set<int64_t> some_packs = interesting_packs(tuning);
  const RowLimits eight_blocks{kHopper.shared_bytes, 8, kHopper.multiprocessors, true};
  const bool spans = kind.masked && !kind.dropout && kind.element_bytes < 8;
  const bool by_name = kind.plain && kind.direction == Direction::forward;
  for (const RowLimits& limits : {kHopper, eight_blocks, kAmpere, kLeast}) {
    for (const int64_t rows : some_rows) {
      for (const int64_t packs : some_packs) {
        RowShape shape = shape_of(kind, packs, rows);
        RowPlan plan = plan_rows(shape, limits, tuning);
        add(plan, kernels);
        for (const Tier tier : {Tier::warp, Tier::block, Tier::cluster}) {
          if (by_name && plan_tier(tier, shape, limits, tuning, &plan)) {
            add(plan, kernels);
          }
        }
        shape.span = spans;
        add(plan_rows(shape, limits, tuning), kernels);
        shape.span = false;
        shape.edges = int64_t{2} * (16 / kind.element_bytes - 1);
        shape.shift = 7;
        add(plan_rows(shape, limits, tuning), kernels);
      }
    }
  }
  return kernels;
}

void add(const KernelSet& more, KernelSet& kernels) {
  kernels.warp = kernels.warp | more.warp;
  kernels.block = kernels.block | more.block;
  kernels.persistent = kernels.persistent | more.persistent;
  kernels.span_warp = kernels.span_warp | more.span_warp;
  kernels.span_block = kernels.span_block | more.span_block;
  kernels.cooperative |= more.cooperative;
  kernels.chunk |= more.chunk;
  kernels.shared |= more.shared;
}

std::string to_string(const LanePacks& packs) {
  std::ostringstream text;
  for (int n = 0; n <= LanePacks::kMax; ++n) {
    if (packs.contains(n)) {
      text << n << ' ';
    }
  }
  return text.str();
}

}  // namespace

TEST_CASE("each kernel is one that a table of the library or a name launches", "[tuning]") {
  for (const RowKind& kind : kinds()) {
    const KernelSet compiled = kernel_set(kind);
    KernelSet used;
    for (const warpfuse::ShippedTable& table : warpfuse::shipped_tables()) {
      add(launched(kind, table.tuning), used);
    }
    INFO((kind.direction == Direction::forward ? "forward " : "backward ")
         << kind.element_bytes << (kind.dropout ? ", dropout" : "")
         << (kind.masked ? ", masked" : "") << (kind.tensor ? ", tensor" : "")
         << (kind.plain ? ", plain" : ""));
    CHECK(to_string(compiled.warp) == to_string(used.warp));
    CHECK(to_string(compiled.block) == to_string(used.block));
    CHECK(to_string(compiled.persistent) == to_string(used.persistent));
    CHECK(to_string(compiled.span_warp) == to_string(used.span_warp));
    CHECK(to_string(compiled.span_block) == to_string(used.span_block));
    CHECK(compiled.cooperative == used.cooperative);
    CHECK(compiled.chunk == used.chunk);
    CHECK(compiled.shared == used.shared);
  }
}

TEST_CASE("no table plans what is not compiled", "[tuning]") {
  // All lines that are not refused, each before the library's table.
  int64_t plans = 0;
  for (const std::string tier :
       {"warp 64", "chunk 64", "span 32", "span 96", "block 96", "cluster 64"}) {
    for (int packs = 0; packs <= 9; ++packs) {
      for (const int ahead : {0, 1}) {
        std::string text;
        const std::string run =
            c10::str(tier, ' ', packs, tier == "cluster 64" ? " 2 " : " 1 ", ahead);
        try {
          text = tuning_with(run);
        } catch (const std::invalid_argument&) {
          continue;
        }
        const Tuning tuning = parse_tuning(text);
        for (const RowKind& kind : kinds()) {
          const KernelSet compiled = kernel_set(kind);
          KernelSet planned;
          for (int64_t n = 0; n < 2000; n += 1 + n / 32) {
            for (const bool span :
                 {false, kind.masked && !kind.dropout && kind.element_bytes < 8}) {
              RowShape shape = shape_of(kind, n, 100);
              shape.span = span;
              RowPlan plan = plan_rows(shape, kHopper, tuning);
              add(plan, planned);
              plans += plan.tier != Tier::stream;
              for (const Tier by_name : {Tier::warp, Tier::block, Tier::cluster}) {
                if (kind.plain && kind.direction == Direction::forward &&
                    plan_tier(by_name, shape, kHopper, tuning, &plan)) {
                  add(plan, planned);
                }
              }
            }
          }
          INFO(run);
          CHECK(compiled.warp.covers(planned.warp));
          CHECK(compiled.block.covers(planned.block));
          CHECK(compiled.persistent.covers(planned.persistent));
          CHECK(compiled.span_warp.covers(planned.span_warp));
          CHECK(compiled.span_block.covers(planned.span_block));
        }
      }
    }
  }
  CHECK(plans > 10'000);
}

TEST_CASE("a function passes over lines whose kernel it does not have", "[tuning]") {
  std::string text = R"(
forward 4 256 * warp  128 8 1 0
forward 4 256 * block 128 2 1 0
forward 4 *   * block 128 4 1 0
forward 4 *   * stream 64 0 4 1
backward 2 *  * span  32  8 1 0
backward 2 *  * span  32  1 1 0)";
  const Tuning tuning = parse_tuning(text.append(kLastEntries));
  constexpr RowKind kPlain{Direction::forward, 4, true, false, false};
  constexpr RowKind kDropout{Direction::forward, 4, false, false, true};
  constexpr RowKind kMasked{Direction::forward, 4, false, true, false};
  constexpr RowKind kMaskedBackward{Direction::backward, 2, false, true, false};
  const auto plan = [&](const RowKind& kind, int64_t packs) {
    RowShape shape = shape_of(kind, packs, 10);
    shape.span = kind.direction == Direction::backward;
    return plan_rows(shape, kHopper, tuning);
  };
  CHECK((plan(kDropout, 256) == RowPlan{Tier::warp, 32, 8, 128, 1, false, 0}));
  CHECK((plan(kPlain, 256) == RowPlan{Tier::block, 32, 2, 128, 1, false, 0}));
  CHECK((plan(kMasked, 256) == RowPlan{Tier::block, 32, 4, 128, 1, false, 0}));
  CHECK(plan(kPlain, 100'000).ahead);
  CHECK_FALSE(plan(kMasked, 100'000).ahead);
  CHECK_FALSE(plan(kDropout, 100'000).ahead);
  CHECK((plan(kMaskedBackward, 256) == RowPlan{Tier::span, 32, 8, 32, 1, false, 0}));
  // The kernel of one pack is for blocks of several warps.
  CHECK(plan(kMaskedBackward, 257).tier == Tier::stream);
}

// g++ 12 takes some class types' values for one as template arguments.
template <LanePacks kNumbers>
std::vector<int> numbers() {
  std::vector<int> found;
  for (int number = 0; number <= LanePacks::kMax; ++number) {
    if (kNumbers.contains(number)) {
      found.push_back(number);
    }
  }
  return found;
}

TEST_CASE("sets of as many kernels are template arguments of their own", "[tuning]") {
  CHECK(numbers<LanePacks{0, 4, 8}>() == std::vector{0, 4, 8});
  CHECK(numbers<LanePacks{1, 2, 4}>() == std::vector{1, 2, 4});
  CHECK(numbers<LanePacks{4}>() == std::vector{4});
  CHECK(numbers<LanePacks{8}>() == std::vector{8});
}
