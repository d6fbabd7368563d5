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
      for (const int vector : {1, 16 / bytes}) {
        for (const int64_t columns : interesting_packs(tuning)) {
          for (const auto& [outer, inner] : std::vector<std::pair<int64_t, int64_t>>{
                   {1, 1}, {1, 8}, {3, 64}, {64, 4096}, {1, int64_t{1} << 33}}) {
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
  const auto plan = [&](int64_t columns, int vector, const RowLimits& limits = kHopper) {
    return plan_columns({Direction::forward, 4, columns, 3, 1024, vector}, limits, tuning);
  };
  CHECK((plan(100, 4) == ColumnPlan{512, 8, 1, 4, 8, false, 96}));
  CHECK((plan(512, 4) == ColumnPlan{512, 8, 1, 4, 8, false, 96}));
  CHECK((plan(513, 4) == ColumnPlan{512, 8, 1, 4, 4, false, 192}));
  CHECK((plan(4096, 4) == ColumnPlan{512, 8, 1, 4, 1, false, 768}));
  CHECK((plan(8, 4) == ColumnPlan{512, 8, 1, 4, 512, false, 2}));  // a thread has whole rows
  CHECK((plan(9, 4) == ColumnPlan{512, 8, 1, 4, 8, false, 96}));
  CHECK((plan(32, 1) == ColumnPlan{256, 32, 1, 1, 256, false, 12}));
  CHECK((plan(100, 1) == ColumnPlan{256, 32, 1, 1, 32, false, 96}));
  CHECK((plan(257, 1) == ColumnPlan{256, 32, 1, 1, 16, false, 192}));
  CHECK((plan(4097, 4) == ColumnPlan{512, 16, 2, 4, 2, true, 384}));
  CHECK((plan(4097, 1) == ColumnPlan{512, 0, 1, 1, 32, false, 96}));  // no copies of elements
  CHECK((plan(4097, 4, kAmpere) == ColumnPlan{512, 0, 1, 1, 32, false, 96}));
}
