// The table that comes of what warpfuse tune measured.

#include <tune/merge.h>

#include <algorithm>

#include "support/catch.h"
#include "tuning_table.h"

namespace {

using warpfuse::parse_tuning;
using warpfuse::RowPlan;
using warpfuse::Tier;
using warpfuse::Tuning;
using warpfuse::TuningEntry;
using namespace warpfuse::host::tune;

TuningEntry run_of(const std::string& run) {
  return table_of("forward 4 * * " + run + "\n").lines(warpfuse::Direction::forward, 4).front();
}

Win win(Function function, Range packs, Range rows, const std::string& run) {
  TuningEntry entry = run_of(run);
  entry.functions = suffix_of(function);
  return {{function, warpfuse::Direction::forward, 4, packs, rows}, entry};
}

constexpr warpfuse::RowKind kPlain{warpfuse::Direction::forward, 4, true, false, false};
constexpr warpfuse::RowKind kMasked{warpfuse::Direction::forward, 4, false, true, false};
constexpr warpfuse::RowKind kDropout{warpfuse::Direction::forward, 4, false, false, true};

RowPlan plan(const warpfuse::RowKind& kind, int64_t packs, int64_t rows, const Tuning& table,
             int64_t edges = 0) {
  return plan_rows({kind, packs, edges, rows, false, edges > 0 ? 7 : 0}, kHopper, table);
}

}  // namespace

TEST_CASE("a win runs its class, and no other row otherwise than before", "[tune]") {
  const Tuning start = warpfuse::default_tuning();
  const std::vector<Win> all{
      win(Function::softmax, {512, 1024}, {1056, kAny}, "block 128 8 1 1"),
      win(Function::softmax, {512, 1024}, {0, 132}, "cluster 256 1 4 0"),
      win(Function::dropout, {128, 256}, {132, kAny}, "block 128 2 1 0"),
      win(Function::attention, {4096, 8192}, {0, 64}, "cluster 512 4 4 0"),
      win(Function::softmax, {65536, kAny}, {1056, kAny}, "stream 512 0 0 0")};
  for (const Tuning& table : {start, stripped()}) {
    CHECK(with_wins(table, {}, kHopper) == table);
    const Tuning tuned = with_wins(table, all, kHopper);
    CHECK(parse_tuning(tuned.to_string()) == tuned);
    int64_t changed = 0;
    for (const warpfuse::RowKind& kind : {kPlain, kMasked, kDropout}) {
      for (int64_t packs = 1; packs < 200'000; packs += 1 + packs / 9) {
        for (const int64_t rows : {1, 64, 65, 132, 133, 1056, 1057, 1'000'000}) {
          for (const int64_t edges : {0, 6}) {
            const Win* found = nullptr;
            for (const Win& each : all) {
              const auto kinds = kinds_of(each.c);
              const bool own = std::ranges::any_of(kinds, [&](const warpfuse::RowKind& known) {
                return known.plain == kind.plain && known.masked == kind.masked &&
                       known.dropout == kind.dropout;
              });
              found = own && packs > each.c.packs.above && packs <= each.c.packs.up_to &&
                              rows > each.c.rows.above && rows <= each.c.rows.up_to
                          ? &each
                          : found;
            }
            RowPlan expected = plan(kind, packs, rows, table, edges);
            if (found != nullptr) {
              const Tuning alone{table.shared_bytes, table.cluster_blocks, {found->run}};
              RowPlan by_win{};
              if (plan_line({kind, packs, edges, rows, false, edges > 0 ? 7 : 0}, kHopper, alone,
                            &by_win) != nullptr) {
                expected = by_win;
                ++changed;
              }
            }
            INFO(packs << " packs, " << rows << " rows, " << edges << " edges");
            CHECK(plan(kind, packs, rows, tuned, edges) == expected);
          }
        }
      }
    }
    CHECK(changed > 100);
  }
}

TEST_CASE("the lines of a half come before those of its class", "[tune]") {
  const Tuning tuned =
      with_wins(stripped(),
                {win(Function::softmax, {192, 256}, {132, kAny}, "block 64 4 1 0"),
                 win(Function::softmax, {128, 256}, {132, kAny}, "block 128 2 1 0")},
                kHopper);
  CHECK(plan(kPlain, 256, 1000, tuned).threads == 64);
  CHECK(plan(kPlain, 193, 1000, tuned).threads == 64);
  CHECK(plan(kPlain, 192, 1000, tuned).threads == 128);
  CHECK(plan(kPlain, 129, 1000, tuned).threads == 128);
  CHECK(plan(kPlain, 128, 1000, tuned).tier == Tier::stream);
  CHECK(plan(kPlain, 256, 100, tuned).tier == Tier::stream);
}

TEST_CASE("neighbours that run alike are one line", "[tune]") {
  const Tuning start = stripped();
  const auto lines = [&](const std::vector<Win>& all) {
    return with_wins(start, all, kHopper).entries.size() - start.entries.size();
  };
  CHECK(lines({win(Function::softmax, {0, 64}, {0, kAny}, "warp 64 4 1 0")}) == 1);
  CHECK(lines({win(Function::softmax, {0, 64}, {0, 132}, "warp 64 4 1 0"),
               win(Function::softmax, {0, 64}, {132, kAny}, "warp 64 4 1 0"),
               win(Function::softmax, {64, 128}, {0, 132}, "warp 64 4 1 0"),
               win(Function::softmax, {64, 128}, {132, kAny}, "warp 64 4 1 0")}) == 1);
  // Below a win's rows the lines of the start come first.
  CHECK(lines({win(Function::softmax, {0, 64}, {132, kAny}, "warp 64 4 1 0")}) == 2);
  CHECK(lines({win(Function::softmax, {64, 128}, {0, kAny}, "warp 64 4 1 0")}) == 2);
}

TEST_CASE("wins of columns are lines of their tier", "[tune]") {
  const TuningEntry run = run_of("column 512 16 2 1");
  const Win found{{Function::columns, warpfuse::Direction::forward, 4, {512, 1024}, {512, kAny}},
                  run};
  const Tuning tuned = with_wins(stripped(), {found}, kHopper);
  const auto plan = [&](int64_t columns, int64_t rows) {
    return plan_columns({warpfuse::Direction::forward, 4, columns, rows, 64, 4}, kHopper, tuned);
  };
  CHECK(plan(1024, 100).ahead);
  CHECK_FALSE(plan(1024, 8).ahead);
  CHECK_FALSE(plan(512, 100).ahead);
  CHECK_FALSE(plan(1025, 100).ahead);
  CHECK(plan_rows({kPlain, 700, 0, 10'000}, kHopper, tuned).tier == Tier::stream);
}
