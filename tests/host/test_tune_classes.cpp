// Which rows warpfuse tune measures, and which kernels it tries, without a GPU.

#include <tune/candidates.h>
#include <tune/merge.h>
#include <tune/probes.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "support/catch.h"
#include "tuning_table.h"

namespace {

using warpfuse::parse_tuning;
using warpfuse::RowLimits;
using warpfuse::RowPlan;
using warpfuse::RowShape;
using warpfuse::Tier;
using warpfuse::Tuning;
using warpfuse::TuningEntry;
using warpfuse::host::bench::Mask;
using namespace warpfuse::host::tune;

constexpr RowLimits kAmpere{size_t{99} * 1024, 1, 84, true};
const std::vector<Function> kAllFunctions{Function::softmax,       Function::attention,
                                          Function::masks,         Function::dropout,
                                          Function::dropout_first, Function::columns};

}  // namespace

TEST_CASE("classes cover all lengths without gaps, those of the presets' rows first", "[tune]") {
  for (const Tuning& table : {warpfuse::default_tuning(), stripped()}) {
    const std::vector<RowClass> classes = classes_of(table, kHopper, kAllFunctions);
    INFO(classes.size());
    CHECK(classes.front().function == Function::softmax);
    CHECK(classes.back().element_bytes == 8);
    std::vector<RowClass> by_length = classes;
    std::ranges::sort(by_length, {}, [](const RowClass& c) { return c.packs.above; });
    for (const Function function : kAllFunctions) {
      for (const warpfuse::Direction direction :
           {warpfuse::Direction::forward, warpfuse::Direction::backward}) {
        for (const int bytes : {2, 4, 8}) {
          int64_t end = 0;
          for (const RowClass& c : by_length) {
            if (c.function == function && c.direction == direction && c.element_bytes == bytes &&
                c.rows.up_to == kAny) {
              CHECK(c.packs.above == end);
              end = c.packs.up_to;
            }
          }
          const bool none = function == Function::dropout_first &&
                            (bytes != 2 || direction == warpfuse::Direction::backward);
          CHECK(((end == kAny) != none || (bytes == 8 && end == 0)));
        }
      }
    }
    // Where rows of a table of docs/benchmarks are, of another preset, and of none.
    const auto place = [&](Function function, int bytes, int64_t packs, int64_t rows) {
      return std::ranges::find_if(classes,
                                  [&](const RowClass& c) {
                                    return c.function == function && c.element_bytes == bytes &&
                                           c.packs.above < packs && packs <= c.packs.up_to &&
                                           c.rows.above < rows && rows <= c.rows.up_to;
                                  }) -
             classes.begin();
    };
    const auto last_of_table = std::max(
        {place(Function::softmax, 4, 2048, 1024), place(Function::softmax, 2, 4096, 4096),
         place(Function::attention, 2, 128, 98304), place(Function::columns, 4, 4096, 4096)});
    const auto of_sweep = place(Function::softmax, 2, 2, 3728270);
    const auto of_none = place(Function::softmax, 4, 96, 1'000'000);
    CHECK(last_of_table < of_sweep);
    CHECK(of_sweep < of_none);
    CHECK(of_none < place(Function::softmax, 2, 64, 132));
  }
  CHECK(classes_of(stripped(), kHopper, {Function::columns}).size() < 100);
}

TEST_CASE("halves of a class are its shorter and its longer rows", "[tune]") {
  const RowClass c{Function::softmax, warpfuse::Direction::forward, 2, {128, 256}, {132, kAny}};
  const std::vector<RowClass> halves = halves_of(c);
  REQUIRE(halves.size() == 2);
  CHECK(halves[0].packs == Range{128, 192});
  CHECK(halves[1].packs == Range{192, 256});
  CHECK(halves[1].rows == c.rows);
  CHECK(halves_of(halves[0])[1].packs == Range{160, 192});
  CHECK(halves_of({c.function, c.direction, 2, {128, 156}, {0, kAny}}).empty());  // a ratio of 1.2
  CHECK(halves_of({c.function, c.direction, 2, {0, 2}, {0, kAny}}).empty());
  CHECK(halves_of({c.function, c.direction, 2, {65536, kAny}, {132, kAny}}).empty());
  const std::vector<RowClass> open =
      halves_of({c.function, c.direction, 2, {131072, kAny}, {0, 4}});
  REQUIRE(open.size() == 2);
  CHECK(open[0].packs == Range{131072, 1048576});
  CHECK(open[1].packs == Range{1048576, kAny});
  CHECK(halves_of(open[1]).empty());
  CHECK(halves_of({Function::columns, c.direction, 2, {128, 512}, {0, kAny}}).empty());
}

TEST_CASE("no class mixes rows that the table runs by different lines", "[tune]") {
  const Tuning table = warpfuse::default_tuning();
  for (const RowClass& c : classes_of(table, kHopper, {Function::softmax, Function::dropout})) {
    if (c.packs.up_to == kAny || c.rows.up_to == kAny) {
      continue;
    }
    for (const warpfuse::RowKind& kind : kinds_of(c)) {
      RowPlan some{}, other{};
      const TuningEntry* const first =
          plan_line({kind, c.packs.up_to, 0, c.rows.up_to}, kHopper, table, &some);
      const TuningEntry* const last =
          plan_line({kind, c.packs.up_to, 0, c.rows.above + 1}, kHopper, table, &other);
      INFO(c.text());
      CHECK(((first == last) || some.tier == Tier::stream || some == other));
    }
  }
}

TEST_CASE("probes lie in their class, aligned and not, with the masks of attention", "[tune]") {
  for (const RowClass& c : classes_of(warpfuse::default_tuning(), kHopper, kAllFunctions)) {
    std::set<Mask> masks;
    bool unaligned = false;
    for (const auto& [probe, of_presets] : probes_of(c, 132)) {
      INFO(c.text() << ": " << text_of(probe));
      masks.insert(probe.mask);
      const int64_t columns = probe.shape.columns(), rows = probe.shape.elements() / columns;
      const int64_t length =
          c.function == Function::columns ? columns : columns / (16 / c.element_bytes);
      unaligned = unaligned || probe.shape.sizes.back() % (16 / c.element_bytes) > 0;
      CHECK(length >= c.packs.above);
      CHECK((c.function == Function::columns || length > c.packs.above ||
             columns % (16 / c.element_bytes) > 0));
      CHECK(length <= c.packs.up_to);
      CHECK(rows <= c.rows.up_to);
      CHECK((rows > c.rows.above || c.function == Function::columns ||
             c.function == Function::attention));
      CHECK(probe.shape.elements() * c.element_bytes <= int64_t{5} << 28);
    }
    CHECK((unaligned || c.function == Function::attention));
    CHECK((c.function == Function::masks) == masks.contains(Mask::boolean));
    CHECK((c.function == Function::attention) == masks.contains(Mask::padding));
    // Attention that hides no key runs by softmax's lines.
    CHECK((c.function != Function::attention || !masks.contains(Mask::none)));
  }
}

TEST_CASE("rows of the presets stand for the class that they lie in", "[tune]") {
  using enum warpfuse::Direction;
  const auto has = [](const RowClass& c, const std::vector<int64_t>& sizes) {
    return std::ranges::any_of(probes_of(c, 132), [&](const ProbeRow& probe) {
      return probe.of_presets && probe.row.shape.sizes == sizes;
    });
  };
  const Range many{1056, kAny};
  CHECK(has({Function::softmax, forward, 2, {0, 1}, many}, {8388608, 8}));
  CHECK_FALSE(has({Function::softmax, forward, 2, {1, 2}, many}, {8388608, 8}));
  CHECK(has({Function::attention, backward, 4, {192, 194}, many}, {100, 777, 777}));
  CHECK_FALSE(has({Function::masks, backward, 4, {192, 194}, many}, {100, 777, 777}));
  CHECK(has({Function::softmax, forward, 2, {4096, 8192}, {0, 4}}, {1, 50257}));
  CHECK(has({Function::softmax, forward, 2, {4096, 8192}, {4, 16}}, {8, 50257}));
  CHECK(has({Function::dropout_first, forward, 2, {512, 1024}, many}, {8192, 8192}));
  CHECK(has({Function::dropout, backward, 2, {512, 1024}, many}, {8192, 8192}));
  const RowClass of_fp16{Function::softmax, backward, 2, {112, 128}, many};
  CHECK(std::ranges::any_of(probes_of(of_fp16, 132), [](const ProbeRow& probe) {
    return probe.of_presets && probe.row.dtype == at::kHalf;
  }));
  // A preset has these forward alone.
  CHECK(has({Function::softmax, forward, 4, {57344, 65536}, {132, 1056}}, {255, 262145}));
  CHECK_FALSE(has({Function::softmax, backward, 4, {57344, 65536}, {132, 1056}}, {255, 262145}));
}

TEST_CASE("candidates suit the GPU, and the parser takes their lines, which have kernels",
          "[tune]") {
  std::set<std::tuple<Function, warpfuse::Direction, int, std::string>> seen;
  for (const Tuning& start : {warpfuse::default_tuning(), stripped()}) {
    for (const RowClass& c : classes_of(start, kHopper, kAllFunctions)) {
      const std::vector<TuningEntry> candidates = candidates_of(c, kHopper);
      INFO(c.text());
      CHECK_FALSE(candidates.empty());
      CHECK(candidates.size() < 65);
      for (const TuningEntry& run : candidates) {
        if (seen.insert({c.function, c.direction, c.element_bytes, run_text(run)}).second) {
          INFO(run_text(run));
          const Tuning measured = parse_tuning(table_of(run, stripped()));
          CHECK(measured.lines(c.direction, c.element_bytes).front() == run);
          const Tuning tuned = with_wins(stripped(), {{c, run}}, kHopper);
          CHECK(run.functions == suffix_of(c.function));
          CHECK(std::ranges::count(tuned.entries, run_text(run), run_text) > 0);
          CHECK(parse_tuning(tuned.to_string()) == tuned);
        }
      }
      CHECK(std::ranges::all_of(candidates_of(c, kAmpere),
                                [](const TuningEntry& run) { return run.blocks <= 1; }));
    }
  }
  CHECK(seen.size() > 500);
}

TEST_CASE("a run that only the fewest rows of a class can follow is a candidate", "[tune]") {
  // One row of 2^21 packs fits into the shared memory of all multiprocessors, four do not.
  for (const warpfuse::Direction direction :
       {warpfuse::Direction::forward, warpfuse::Direction::backward}) {
    const std::vector<TuningEntry> candidates =
        candidates_of({Function::softmax, direction, 2, {1048576, kAny}, {0, 4}}, kHopper);
    CHECK(std::ranges::count(candidates, "stream 512 0 0 1", run_text) == 1);
  }
}

TEST_CASE("the shipped tables' runs are among the candidates", "[tune]") {
  int64_t known = 0, all = 0;
  for (const warpfuse::ShippedTable& shipped : warpfuse::shipped_tables()) {
    const Tuning& table = shipped.tuning;
    for (const RowClass& c : classes_of(table, kHopper, kAllFunctions)) {
      if (c.packs.up_to == kAny || c.function == Function::columns) {
        continue;
      }
      const std::vector<TuningEntry> candidates = candidates_of(c, kHopper);
      const int64_t rows = c.rows.up_to == kAny ? 1'000'000 : c.rows.up_to;
      for (const warpfuse::RowKind& kind : kinds_of(c)) {
        for (const int64_t edges : {0, 2}) {
          const RowShape shape{kind, c.packs.up_to, edges, rows, false, edges > 0 ? 7 : 0};
          const RowPlan plan = plan_rows(shape, kHopper, table);
          all += 1;
          const bool found = std::ranges::any_of(candidates, [&](const TuningEntry& run) {
            RowPlan own{};
            return plan_line(shape, kHopper, {table.shared_bytes, table.cluster_blocks, {run}},
                             &own) != nullptr &&
                   own == plan;
          });
          known += found ? 1 : 0;
          INFO(c.text() << ", " << edges << " edges: " << plan.to_string());
          // A few rows may follow a line that was measured for many.
          CHECK((found || c.rows.up_to != kAny));
        }
      }
    }
  }
  INFO(known << " of " << all);
  CHECK(known * 100 >= all * 99);
}
