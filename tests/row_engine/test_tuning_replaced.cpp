// The tuning table in use is replaced: by the library's operators, and while other threads plan.

#include <rowwise/tuning.h>

#include <atomic>
#include <set>
#include <thread>

#include "support/devices.h"
#include "support/errors.h"
#include "support/pch.h"
#include "support/row_engine.h"
#include "support/tuning_shapes.h"

using warpfuse::Direction;
using warpfuse::parse_tuning;
using warpfuse::plan_rows;
using warpfuse::RowPlan;
using warpfuse::RowShape;
using warpfuse::Tuning;

TEST_CASE("the library's table is read and replaced by operators", "[tuning]") {
  const std::string before = library_tuning();
  CHECK(parse_tuning(before).to_string() == before);
  {
    const TuningInUse other(std::string("limit shared_bytes 4096\n") + kLastEntries);
    CHECK(parse_tuning(library_tuning()).shared_bytes == 4096);
    CHECK(parse_tuning(library_tuning()).entries.size() == 12);
    set_library_tuning("");  // that of this machine's GPU, or the default
    const std::string shipped = library_tuning();
    CHECK((has_gpu() || shipped == warpfuse::default_tuning().to_string()));
    CHECK(std::ranges::any_of(warpfuse::shipped_tables(), [&](const auto& table) {
      return table.tuning.to_string() == shipped;
    }));
    CHECK(library_tuning() == shipped);
    // What is refused changes nothing.
    CHECK(error_of([] { set_library_tuning("\nforward 4 256 * warp 512 8 1 0"); }) ==
          "Error: warpfuse::_set_tuning: text: expected a tuning table as warpfuse::tuning() gives "
          "it, got line 2, \"forward 4 256 * warp 512 8 1 0\": threads are a multiple of 32 up to "
          "256");
    CHECK(library_tuning() == shipped);
  }
  CHECK(library_tuning() == before);
}

TEST_CASE("tables are replaced while other threads plan", "[tuning][threads]") {
  const std::string first = std::string("forward 4 * * block 128 4 1 0\n") + kLastEntries;
  const std::string second = std::string("forward 4 * * block 256 2 1 0\n") + kLastEntries;
  const RowShape shape{row_kind(Direction::forward, 4), 500, 0, 1000, false, 0};
  const RowPlan plans[] = {plan_rows(shape, kHopper, parse_tuning(first)),
                           plan_rows(shape, kHopper, parse_tuning(second))};
  REQUIRE_FALSE(plans[0] == plans[1]);
  const Tuning& before = warpfuse::tuning();  // lives on
  warpfuse::set_tuning(parse_tuning(first));
  REQUIRE(current_plan(shape, kHopper) == plans[0]);
  warpfuse::set_tuning(parse_tuning(second));
  REQUIRE(current_plan(shape, kHopper) == plans[1]);
  std::atomic<bool> done{false};
  std::atomic<int64_t> planned[] = {0, 0}, torn{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      while (!done) {
        const RowPlan plan = current_plan(shape, kHopper);
        ++(plan == plans[0] ? planned[0] : plan == plans[1] ? planned[1] : torn);
      }
    });
  }
  std::set<const Tuning*> tables;
  for (int i = 0; i < 20'000 || planned[0] == 0 || planned[1] == 0; ++i) {
    warpfuse::set_tuning(parse_tuning(i % 2 == 0 ? second : first));
    tables.insert(&warpfuse::tuning());
  }
  done = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
  warpfuse::set_tuning(before);
  CHECK(torn == 0);
  CHECK(tables.size() == 2);  // a table that comes back takes no memory
}
