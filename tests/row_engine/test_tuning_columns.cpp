// Which tiles rows that are not contiguous get.

#include <rowwise/tuning.h>

#include <utility>
#include <vector>

#include "row_engine/plan_faults.h"
#include "support/pch.h"
#include "support/row_engine.h"
#include "support/tuning_shapes.h"

namespace {

using warpfuse::ColumnPlan;
using warpfuse::ColumnShape;
using warpfuse::default_tuning;
using warpfuse::Direction;
using warpfuse::parse_tuning;
using warpfuse::plan_columns;
using warpfuse::RowLimits;
using warpfuse::Tuning;

}  // namespace

TEST_CASE("every shape of rows that are not contiguous has tiles that hold it", "[tuning]") {
  const Tuning tuning = default_tuning();
  int64_t plans = 0;
  for (const RowLimits& limits : {kHopper, kAmpere, kLeast}) {
    for (const auto& [direction, bytes] : kDirectionsAndBytes) {
      for (const int vector : std::set{1, bytes == 2 ? 2 : 1, 16 / bytes}) {
        for (const int64_t columns : interesting_packs(tuning)) {
          for (const auto& [outer, inner] : std::vector<std::pair<int64_t, int64_t>>{
                   {1, 1}, {1, 8}, {1000, 6}, {3, 64}, {64, 4096}, {1, int64_t{1} << 33}}) {
            const ColumnShape shape{direction, bytes, std::max<int64_t>(1, columns),
                                    outer,     inner, vector};
            const ColumnPlan plan = plan_columns(shape, limits, tuning);
            ++plans;
            if (const std::string text = fault(plan, shape, limits); !text.empty()) {
              FAIL_CHECK(text << ": " << columns << " columns of " << bytes << "-byte elements, "
                              << vector << " at once, outer " << outer << ", inner " << inner
                              << ": " << plan.threads << " threads, width " << plan.width << ", "
                              << plan.blocks << " blocks");
            }
          }
        }
      }
    }
  }
  CHECK(plans > 10'000);
}

TEST_CASE("tiles are as wide as their columns allow, and a cache line at most", "[tuning]") {
  const Tuning tuning = parse_tuning(std::string("forward 4 5000 * column 512 8 1 0\n"
                                                 "forward 4 * * column 512 16 2 1\n"
                                                 "forward 4 600 * column 256 32 1 0") +
                                     kLastEntries);
  const auto plan = [&](int64_t columns, int vector, int64_t inner = 1024,
                        const RowLimits& limits = kHopper) {
    return plan_columns({Direction::forward, 4, columns, 3, inner, vector}, limits, tuning);
  };
  CHECK((plan(100, 4) == ColumnPlan{512, 8, 1, 4, 8, 0, false, 96}));
  CHECK((plan(512, 4) == ColumnPlan{512, 8, 1, 4, 8, 0, false, 96}));
  CHECK((plan(513, 4) == ColumnPlan{512, 8, 1, 4, 4, 0, false, 192}));
  CHECK((plan(4096, 4) == ColumnPlan{512, 8, 1, 4, 1, 0, false, 768}));
  CHECK((plan(100, 1) == ColumnPlan{256, 32, 1, 1, 32, 0, false, 96}));
  CHECK((plan(257, 1) == ColumnPlan{256, 32, 1, 1, 16, 0, false, 192}));
  CHECK((plan(4097, 4) == ColumnPlan{512, 16, 2, 4, 2, 0, true, 384}));
  CHECK((plan(4097, 1) == ColumnPlan{512, 0, 1, 1, 32, 0, false, 96}));  // no copies of elements
  CHECK((plan(4097, 4, 1024, kAmpere) == ColumnPlan{512, 0, 1, 1, 32, 0, false, 96}));

  // Where few rows lie side by side, a tile is narrower, and a block has fewer threads.
  CHECK((plan(1000, 4, 4) == ColumnPlan{128, 8, 1, 4, 1, 0, false, 3}));
  CHECK((plan(4097, 4, 4) == ColumnPlan{512, 16, 1, 4, 1, 0, true, 3}));
  CHECK((plan(4097, 1, 3) == ColumnPlan{512, 0, 1, 1, 4, 0, false, 3}));
}

TEST_CASE("short rows are in one warp, whose lanes read two sectors or more", "[tuning]") {
  const Tuning tuning = parse_tuning(std::string("forward 4 600 * column 512 8 1 0\n"
                                                 "forward 4 600 * column 256 32 1 0\n"
                                                 "forward 2 600 * column 256 32 1 0\n") +
                                     kLastEntries);
  const auto plan = [&](int64_t columns, int vector, int64_t inner = 1024, int bytes = 4) {
    return plan_columns({Direction::forward, bytes, columns, 3, inner, vector}, kHopper, tuning);
  };
  // A thread has a row, or two, four or eight threads have.
  CHECK((plan(8, 4) == ColumnPlan{512, 8, 1, 4, 512, 32, false, 2}));
  CHECK((plan(9, 4) == ColumnPlan{512, 8, 1, 4, 256, 16, false, 3}));
  CHECK((plan(64, 4) == ColumnPlan{512, 8, 1, 4, 64, 4, false, 12}));
  CHECK(plan(65, 4).lanes == 0);
  CHECK((plan(32, 1) == ColumnPlan{256, 32, 1, 1, 256, 32, false, 12}));
  CHECK((plan(33, 1) == ColumnPlan{256, 32, 1, 1, 128, 16, false, 24}));
  CHECK(plan(65, 1).lanes == 0);
  // Words of half precision, where rows lie in pairs at least.
  CHECK((plan(32, 8, 1024, 2) == ColumnPlan{256, 32, 1, 2, 256, 32, false, 6}));
  CHECK((plan(64, 2, 1024, 2) == ColumnPlan{256, 32, 1, 2, 128, 16, false, 12}));
  CHECK((plan(64, 1, 1023, 2).vector == 1));
  // Where columns are short, lanes read neighbouring ones: four columns and more per thread.
  CHECK((plan(8, 1, 2) == ColumnPlan{256, 32, 1, 1, 128, 16, false, 1}));
  CHECK((plan(7, 1, 2) == ColumnPlan{256, 32, 1, 1, 256, 32, false, 1}));
  CHECK((plan(100, 4, 4) == ColumnPlan{512, 8, 1, 4, 32, 2, false, 1}));
  CHECK((plan(600, 1, 6) == ColumnPlan{256, 32, 1, 1, 8, 1, false, 3}));
}
