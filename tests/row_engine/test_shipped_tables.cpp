// The tables that the library comes with, and which GPU gets which.

#include <rowwise/tuning.h>

#include <bit>
#include <set>

#include "support/pch.h"
#include "support/row_engine.h"
#include "support/tuning_shapes.h"

namespace {

using warpfuse::GpuModel;
using warpfuse::parse_gpu_line;
using warpfuse::RowLimits;
using warpfuse::RowShape;
using warpfuse::shipped_for;
using warpfuse::shipped_tables;
using warpfuse::ShippedTable;

/// The name of the table's GPU that a GPU gets.
std::string table_for(const GpuModel& gpu, const std::vector<ShippedTable>& tables) {
  return shipped_for(gpu, tables).gpu.name;
}

}  // namespace

TEST_CASE("each shipped table is of a GPU of its own, and the usual one is the default",
          "[tuning]") {
  std::set<std::string> names;
  for (const ShippedTable& table : shipped_tables()) {
    CHECK(names.insert(table.gpu.name).second);
    CHECK(table.gpu.capability >= 70);
    CHECK(table.gpu.multiprocessors > 0);
    CHECK(shipped_for(table.gpu, shipped_tables()).tuning == table.tuning);
  }
  CHECK(names.contains("NVIDIA H200"));
  CHECK(warpfuse::default_tuning() ==
        shipped_for(GpuModel{"NVIDIA H200", 90, 132}, shipped_tables()).tuning);
}

TEST_CASE("a table is chosen by name, else by capability, else by multiprocessors", "[tuning]") {
  std::vector<ShippedTable> tables;
  for (const GpuModel& gpu : {GpuModel{"small", 80, 108}, GpuModel{"large", 90, 132},
                              GpuModel{"half", 90, 66}, GpuModel{"new", 100, 148}}) {
    tables.push_back({gpu, warpfuse::default_tuning()});
  }
  CHECK(table_for({"half", 80, 108}, tables) == "half");  // whatever a part of it reports
  CHECK(table_for({"other", 90, 114}, tables) == "large");
  CHECK(table_for({"other", 90, 60}, tables) == "half");
  CHECK(table_for({"other", 90, 99}, tables) == "large");  // a tie: the first
  CHECK(table_for({"other", 86, 148}, tables) == "large");
  CHECK(table_for({"other", 75, 40}, tables) == "small");
  CHECK(table_for({"other", 120, 40}, tables) == "new");
}

TEST_CASE("a table's first line says for which GPU it was measured", "[tuning]") {
  const GpuModel gpu{"NVIDIA H100 80GB HBM3", 90, 132};
  CHECK(gpu_line(gpu) == "# gpu 9.0 132 NVIDIA H100 80GB HBM3\n");
  CHECK(parse_gpu_line(gpu_line(gpu) + "# more\n") == gpu);
  CHECK(parse_gpu_line("# gpu 12.1 48 A GPU") == GpuModel{"A GPU", 121, 48});
  for (const char* other : {"", "\n# gpu 9.0 132 NVIDIA H200", "# gpu 9.0 132", "# gpu 9.0 many X",
                            "forward 4 256 * block 128 4 1 0", "# a table"}) {
    CHECK_FALSE(parse_gpu_line(other));
  }
}

TEST_CASE("many short rows share warps, in each shipped table", "[tuning]") {
  int64_t plans = 0;
  for (const ShippedTable& table : shipped_tables()) {
    for (const auto& [direction, bytes] : kDirectionsAndBytes) {
      for (const warpfuse::RowKind& kind : warpfuse::row_kinds(direction, bytes)) {
        for (uint64_t packs = 1; packs <= 16; ++packs) {
          warpfuse::RowShape shape{kind, static_cast<int64_t>(packs), 0, 100'000};
          shape.span = kind.masked && !kind.tensor;
          const warpfuse::RowPlan plan = plan_rows(shape, kHopper, table.tuning);
          CAPTURE(table.gpu.name, direction == warpfuse::Direction::forward, bytes, packs,
                  kind.masked, plan.to_string());
          CHECK(plan.lanes <= static_cast<int>(std::bit_ceil(packs)));
          ++plans;
        }
      }
    }
  }
  CHECK(plans > 500);
}

TEST_CASE("a thread remembers plans of the shape, the limits and the table that it asks for",
          "[tuning]") {
  const warpfuse::Tuning& before = warpfuse::tuning();  // lives on
  const auto check = [](const ShippedTable& table, const RowShape& shape) {
    for (const RowLimits& limits : {kHopper, kAmpere, kHopper}) {
      CHECK(current_plan(shape, limits) == plan_rows(shape, limits, table.tuning));
    }
  };
  for (const ShippedTable& table : shipped_tables()) {
    warpfuse::set_tuning(table.tuning);
    // More shapes than a thread remembers; neighbours differ in one thing.
    for (const int64_t packs : {3, 20, 100, 700, 5000, 40000}) {
      for (const auto& [direction, bytes] : kDirectionsAndBytes) {
        for (const warpfuse::RowKind& kind : warpfuse::row_kinds(direction, bytes)) {
          for (const int64_t rows : {1, 300, 100'000}) {
            check(table, {kind, packs, 0, rows});
            check(table, {kind, packs, 2, rows, false, 7});
            check(table, {kind, packs, 0, rows, true});
          }
        }
      }
    }
  }
  warpfuse::set_tuning(before);
}
