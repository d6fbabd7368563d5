#include "tune/row_class.h"

#include <fmt/format.h>

#include <tuple>

#include "tune/probes.h"

namespace warpfuse::host::tune {
namespace {

// Lengths of rows that tiers and natural sizes divide.
constexpr std::array<int64_t, 19> kPacks{
    1, 2, 4, 8, 16, 32, 64, 96, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072};
constexpr std::array<int64_t, 7> kColumns{32, 128, 512, 1024, 2048, 4096, 8192};
constexpr int64_t kLongPacks = 65536;
constexpr int64_t kFewRowsPacks = 1024;             // from which a few rows are split over blocks
constexpr int64_t kManyRowsPacks = 2048;            // from which many are
constexpr int64_t kMinBytes = int64_t{256} * 1024;  // of a class that can gain from another kernel
constexpr int64_t kMaxBytes = int64_t{1024} * 1024 * 1024;  // of its fewest and longest rows
// Of a class that can be halved: its packs, and the ratio of its longest rows to its shortest.
constexpr int64_t kMinHalvedPacks = 4;
constexpr double kMinHalvedRatio = 1.25;
// Of a class without longest rows, with few of them: its shorter part ends at so many times its
// shortest, and at no more than kMaxOpenPacks.
constexpr int64_t kOpenRatio = 8, kMaxOpenPacks = int64_t{1024} * 1024;

bool is_column(const TuningEntry& entry) { return entry.tier == Tier::column; }

// The lines that rows of the function may follow.
std::vector<TuningEntry> lines_for(const RowClass& c, const Tuning& table) {
  std::vector<TuningEntry> lines;
  const std::vector<RowKind> kinds = kinds_of(c);
  for (const TuningEntry& entry : table.lines(c.direction, c.element_bytes)) {
    if (is_column(entry) == (c.function == Function::columns) &&
        std::ranges::any_of(kinds, [&](const RowKind& kind) { return entry.is_for(kind); })) {
      lines.push_back(entry);
    }
  }
  return lines;
}

std::vector<Range> packs_of(const RowClass& c, const std::vector<TuningEntry>& lines) {
  std::set<int64_t> borders(kPacks.begin(), kPacks.end());
  if (c.function == Function::columns) {
    borders = {kColumns.begin(), kColumns.end()};
  }
  for (const TuningEntry& line : lines) {
    if (line.packs != kAny) {
      borders.insert(line.packs);
    }
  }
  return ranges_of(borders);
}

// Where lines that rows of this length reach end, and where a GPU fills.
std::vector<Range> rows_of(const RowClass& c, const std::vector<TuningEntry>& lines,
                           const RowLimits& limits, const Tuning& table) {
  if (c.function == Function::columns) {
    return ranges_of({512});
  }
  const int64_t all = limits.multiprocessors;
  std::set<int64_t> borders{all};
  if (c.packs.up_to <= kManyRowsPacks) {
    borders.insert(8 * all);  // of long rows no more are needed to fill it
  }
  if (c.packs.above >= kFewRowsPacks) {
    borders.insert({16, 64});
    if (c.function == Function::softmax) {
      borders.insert(4);  // a token's logits, or some
    }
  }
  const int64_t packs = c.longest();
  for (const TuningEntry& line : lines) {
    const auto runs_alike = [&](const RowKind& kind) {
      RowShape shape{kind, packs, 0, line.rows};
      RowPlan before{}, after{};
      plan_line(shape, limits, table, &before);
      shape.rows = line.rows + 1;
      plan_line(shape, limits, table, &after);
      return before == after;
    };
    if (line.rows != kAny && line.packs >= packs && !std::ranges::all_of(kinds_of(c), runs_alike)) {
      borders.insert(line.rows);
    }
  }
  return ranges_of(borders);
}

bool matters(const RowClass& c) {
  if (kinds_of(c).empty() ||
      (c.function != Function::columns && c.longest() * 16 * (c.rows.above + 1) > kMaxBytes)) {
    return false;
  }
  if (c.element_bytes == 8) {
    return c.rows.up_to == kAny &&
           (c.function == Function::softmax || c.function == Function::columns);
  }
  return c.rows.up_to == kAny || c.packs.up_to == kAny || c.packs.up_to >= kLongPacks ||
         c.packs.up_to * 16 * c.rows.up_to >= kMinBytes;
}

}  // namespace

std::vector<Range> ranges_of(std::set<int64_t> borders) {
  borders.insert({0, kAny});
  std::vector<Range> ranges;
  for (auto border = borders.begin(); *border != kAny;) {
    const int64_t above = *border++;
    ranges.push_back({above, *border});
  }
  return ranges;
}

std::string Range::text() const {
  return fmt::format("({}, {}]", above, up_to == kAny ? "*" : std::to_string(up_to));
}

std::string RowClass::text() const {
  return fmt::format("{} {} {} bytes, {} {}, rows {}", bench::name_in(kFunctionNames, function),
                     direction == Direction::forward ? "forward" : "backward", element_bytes,
                     function == Function::columns ? "columns" : "packs", packs.text(),
                     rows.text());
}

int64_t RowClass::longest() const { return packs.up_to == kAny ? 2 * packs.above : packs.up_to; }

bool covers(const RowClass& c, const RowClass& row) {
  return c.function == row.function && c.direction == row.direction &&
         c.element_bytes == row.element_bytes && row.packs.within(c.packs) &&
         row.rows.within(c.rows);
}

std::vector<RowKind> kinds_of(const RowClass& c) {
  std::vector<RowKind> kinds;
  TuningEntry line{};
  line.functions = suffix_of(c.function);
  for (const RowKind& kind : row_kinds(c.direction, c.element_bytes)) {
    const bool own = c.function == Function::columns   ? kind.plain
                     : c.function == Function::dropout ? !kind.masked && kind.dropout
                                                       : line.is_for(kind);
    if (own) {
      kinds.push_back(kind);
    }
  }
  return kinds;
}

RowShape odd_shape(const RowKind& kind, int64_t packs, int64_t rows) {
  const int64_t most_edges = int64_t{2} * (16 / kind.element_bytes - 1);
  return {kind, packs, most_edges, rows, false, kLinePacks - 1};
}

TuningEntry::Functions suffix_of(Function function) {
  using enum TuningEntry::Functions;
  return std::array{plain, rules, tensor, dropout, dropout_first, all}.at(
      static_cast<size_t>(function));
}

std::vector<RowClass> classes_of(const Tuning& start, const RowLimits& limits,
                                 const std::vector<Function>& functions) {
  std::vector<RowClass> classes;
  for (const Function function : functions) {
    for (const int bytes : {2, 4, 8}) {
      for (const Direction direction : {Direction::forward, Direction::backward}) {
        RowClass c{function, direction, bytes, {0, kAny}, {0, kAny}};
        const std::vector<TuningEntry> lines = lines_for(c, start);
        for (const Range& packs : packs_of(c, lines)) {
          c.packs = packs;
          for (const Range& rows : rows_of(c, lines, limits, start)) {
            c.rows = rows;
            if (matters(c)) {
              classes.push_back(c);
            }
          }
        }
      }
    }
  }
  const auto& used = preset_rows();
  std::ranges::stable_sort(classes, {}, [&](const RowClass& c) {
    const auto rank = std::ranges::find_if(used, [&](const std::vector<PresetRow>& rows) {
      return std::ranges::any_of(rows, [&](const PresetRow& row) { return covers(c, row.c); });
    });
    return std::tuple(c.element_bytes == 8, rank - used.begin(), c.rows.up_to != kAny, c.function);
  });
  return classes;
}

std::vector<RowClass> halves_of(const RowClass& c) {
  const auto [above, up_to] = c.packs;
  const bool open = up_to == kAny;
  const int64_t border = open ? kOpenRatio * above : above + (up_to - above) / 2;
  const bool worth =
      open ? c.rows.up_to != kAny && border <= kMaxOpenPacks
           : static_cast<double>(up_to) >= kMinHalvedRatio * static_cast<double>(above) &&
                 up_to - above >= kMinHalvedPacks;
  if (c.function == Function::columns || !worth) {
    return {};
  }
  RowClass shorter = c, longer = c;
  shorter.packs.up_to = longer.packs.above = border;
  return {shorter, longer};
}

}  // namespace warpfuse::host::tune
