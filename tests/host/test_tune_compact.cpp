// Tables that lose the lines that change nothing: every plan stays.

#include <tune/merge.h>

#include <random>

#include "support/catch.h"
#include "tuning_table.h"

namespace {

using warpfuse::Direction;
using warpfuse::parse_tuning;
using warpfuse::RowKind;
using warpfuse::RowLimits;
using warpfuse::RowPlan;
using warpfuse::RowShape;
using warpfuse::Tier;
using warpfuse::Tuning;
using warpfuse::host::tune::compacted;

constexpr RowLimits kLimits[] = {{size_t{227} * 1024, 16, 132, true},
                                 {size_t{99} * 1024, 1, 84, true},
                                 {size_t{40} * 1024, 4, 20, false}};
constexpr int64_t kPacks[] = {8, 40, 64, 300, 1000, 9000};
constexpr int64_t kRows[] = {16, 132};

// The lines of a compact table that are not at the end of every one.
std::string compact_lines(const std::string& lines) {
  Tuning table = compacted(table_of(lines));
  const std::vector<warpfuse::TuningEntry> ends = table_of("").entries;
  std::erase_if(table.entries,
                [&](const auto& entry) { return std::ranges::find(ends, entry) != ends.end(); });
  const std::string text = table.to_string();
  return text.substr(text.find("ahead\n") + 6);
}

std::string random_lines(std::mt19937_64& engine) {
  const auto one_of = [&](const auto& list) {
    return list[std::uniform_int_distribution<size_t>(0, std::size(list) - 1)(engine)];
  };
  const std::string starts[] = {"forward",           "forward",         "forward_plain",
                                "forward_masked",    "forward_rules",   "forward_dropout",
                                "forward_no_tensor", "forward_tensor",  "backward",
                                "backward_plain",    "backward_tensor", "backward_dropout"};
  const std::string packs[] = {"8", "40", "64", "300", "1000", "9000", "*"};
  const std::string rows[] = {"16", "132", "*", "*"};
  const std::string runs[] = {"warp 64 4 1 0",    "warp 128 2 1 0",   "chunk 64 40 1 0",
                              "chunk 64 20 1 0",  "span 64 4 1 0",    "block 64 4 1 0",
                              "block 256 4 1 0",  "block 256 0 1 1",  "cluster 256 4 4 0",
                              "cluster 64 0 2 1", "stream 128 0 0 1", "column 256 8 1 0",
                              "column 256 8 4 0"};
  std::string lines;
  for (int accepted = 0; accepted < 40;) {
    const std::string line = one_of(starts) + (accepted % 2 == 0 ? " 2 " : " 4 ") + one_of(packs) +
                             ' ' + one_of(rows) + ' ' + one_of(runs) + '\n';
    try {
      table_of(line);
    } catch (const std::invalid_argument&) {
      continue;  // there is no such kernel
    }
    lines += line;
    ++accepted;
  }
  return lines;
}

// Around the borders of random_lines().
std::vector<RowShape> shapes() {
  std::vector<RowShape> all;
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    for (const int bytes : {2, 4}) {
      for (const RowKind& kind : row_kinds(direction, bytes)) {
        for (const int64_t border : kPacks) {
          for (const int64_t packs : {border - 1, border, border + 1, 2 * border}) {
            for (const int64_t number : kRows) {
              for (const int64_t rows : {number, number + 1}) {
                all.push_back({kind, packs, 0, rows, false, 0});
                all.push_back({kind, packs, 0, rows, true, 0});
                all.push_back({kind, packs, 6, rows, false, 7});
              }
            }
          }
        }
      }
    }
  }
  return all;
}

// Whether a row's plan is the same: by default, by each tier's name, and as a column.
bool alike(const RowShape& shape, const RowLimits& limits, const Tuning& a, const Tuning& b) {
  bool same = plan_rows(shape, limits, a) == plan_rows(shape, limits, b);
  for (const Tier tier :
       {Tier::warp, Tier::chunk, Tier::span, Tier::block, Tier::cluster, Tier::stream}) {
    RowPlan of_a{}, of_b{};
    const bool has = plan_tier(tier, shape, limits, a, &of_a);
    same = same && has == plan_tier(tier, shape, limits, b, &of_b) && (!has || of_a == of_b);
  }
  const int vector = shape.edges > 0 ? 1 : 16 / shape.kind.element_bytes;
  const warpfuse::ColumnShape column{
      shape.kind.direction, shape.kind.element_bytes, shape.packs, 1, shape.rows, vector};
  return same && plan_columns(column, limits, a) == plan_columns(column, limits, b);
}

}  // namespace

TEST_CASE("a compact table has every plan of the table", "[tune]") {
  std::mt19937_64 engine(24);
  const std::vector<RowShape> all = shapes();
  size_t before = 0, after = 0;
  for (int i = 0; i < 25; ++i) {
    const Tuning table = table_of(random_lines(engine));
    const Tuning compact = compacted(table);
    before += table.entries.size();
    after += compact.entries.size();
    CHECK(parse_tuning(compact.to_string()) == compact);
    INFO(table.to_string() << "compact:\n" << compact.to_string());
    for (const RowLimits& limits : kLimits) {
      CHECK(std::ranges::all_of(
          all, [&](const RowShape& shape) { return alike(shape, limits, table, compact); }));
    }
  }
  INFO(before << " lines, " << after << " after");
  CHECK(after * 10 < before * 9);
}

TEST_CASE("lines that change nothing go", "[tune]") {
  // Never reached, the run of the line behind it, and ranges that are one.
  CHECK(compact_lines("forward 4 256 * block 64 4 1 0\n"
                      "forward 4 64 16 block 64 4 1 0\n") == "forward 4 256 * block 64 4 1 0\n");
  CHECK(compact_lines("forward_plain 4 64 16 block 64 4 1 0\n"
                      "forward 4 256 * block 64 4 1 0\n") == "forward 4 256 * block 64 4 1 0\n");
  CHECK(compact_lines("forward 4 64 132 warp 64 4 1 0\n"
                      "forward 4 64 * block 64 4 1 0\n"
                      "forward 4 128 132 warp 64 4 1 0\n"
                      "forward 4 128 * block 64 4 1 0\n") ==
        "forward 4 128 132 warp 64 4 1 0\n"
        "forward 4 128 * block 64 4 1 0\n");
}

TEST_CASE("lines that some row needs stay", "[tune]") {
  for (const std::string lines :
       {// A class in another, shorter and fewer rows first.
        "forward 4 128 * warp 64 4 1 0\n"
        "forward 4 192 * block 64 4 1 0\n"
        "forward 4 256 132 block 64 4 1 0\n"
        "forward_plain 4 256 * block 128 2 1 0\n"
        "forward 4 256 * block 64 4 1 0\n",
        // What a GPU with less shared memory, or none with clusters, goes on to.
        "forward 4 4000 * block 512 0 1 1\n"
        "forward 4 4000 * cluster 512 4 2 0\n"
        "forward 4 4000 * block 1024 4 1 0\n"}) {
    CHECK(compact_lines(lines) == lines);
  }
  // What a tier's name takes where no default does.
  CHECK(compact_lines("forward 4 * * stream 256 0 0 0\n"
                      "forward 4 1000 * block 256 4 1 0\n") ==
        "forward 4 1000 * block 256 4 1 0\n");
}

TEST_CASE("the shipped tables have no line too many", "[tune]") {
  for (const warpfuse::ShippedTable& table : warpfuse::shipped_tables()) {
    INFO(table.gpu.name);
    CHECK(compacted(table.tuning) == table.tuning);
  }
}
