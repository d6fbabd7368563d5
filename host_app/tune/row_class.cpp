#include "tune/row_class.h"

#include <fmt/format.h>

#include <tuple>

#include "bench/plan.h"

namespace warpfuse::host::tune {
namespace {

using bench::Case;
using bench::Mask;

// Lengths of rows that tiers and natural sizes divide.
constexpr std::array<int64_t, 14> kPacks{8,   16,   32,   64,   96,   128,   256,
                                         512, 1024, 2048, 4096, 8192, 16384, 32768};
constexpr std::array<int64_t, 7> kColumns{32, 128, 512, 1024, 2048, 4096, 8192};
constexpr int64_t kLongPacks = 65536;
constexpr int64_t kShortPacks = 512;      // up to which rows that are not aligned are many
constexpr int64_t kFewRowsPacks = 1024;   // from which a few rows are split over blocks
constexpr int64_t kManyRowsPacks = 2048;  // from which many are
constexpr int64_t kMinBytes = int64_t{128} * 1024;  // of a class that can gain from another kernel
constexpr int64_t kProbeBytes = int64_t{64} * 1024 * 1024;      // of a tensor
constexpr int64_t kMaxProbeBytes = int64_t{512} * 1024 * 1024;  // of one with long rows
constexpr int64_t kMaxQueries = 8192;
constexpr int64_t kMinHalvedPacks = 8;  // of a class that can be halved

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
  borders.insert(kLongPacks);
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
  if (c.element_bytes == 8) {
    return c.rows.up_to == kAny &&
           (c.function == Function::softmax || c.function == Function::columns);
  }
  return c.rows.up_to == kAny || c.packs.up_to == kAny || c.packs.up_to >= kLongPacks ||
         c.packs.up_to * 16 * c.rows.up_to >= kMinBytes;
}

c10::ScalarType dtype_of(int element_bytes) {
  return element_bytes == 2 ? at::kBFloat16 : element_bytes == 4 ? at::kFloat : at::kDouble;
}

// The function whose lines a row of the benchmark follows.
std::optional<Function> function_of(const Case& c) {
  const std::string_view name = c.op->name;
  return name == "softmax" ? (c.shape.dim < 0 ? Function::softmax : Function::columns)
         : name == "scaled_masked_softmax"
             ? std::optional(c.mask == Mask::boolean || c.mask == Mask::additive
                                 ? Function::masks
                                 : Function::attention)
         : name == "softmax_dropout" || name == "dropout_softmax" ? std::optional(Function::dropout)
                                                                  : std::nullopt;
}

// Rows of the benchmark's presets, those of its tables first, as classes of one size.
std::array<std::vector<RowClass>, 2> rows_of_presets() {
  std::array<std::vector<RowClass>, 2> rows;
  for (size_t i = 0; i < rows.size(); ++i) {
    const bench::Request preset{.op = "all",
                                .shapes = i == 0 ? "table" : "sweep,dropout",
                                .dtypes = {},
                                .masks = {},
                                .backward = true};
    for (const Case& c : bench::plan(preset)) {
      if (const auto function = function_of(c)) {
        const auto bytes = static_cast<int>(c10::elementSize(c.dtype));
        const int64_t columns = c.shape.columns();
        const int64_t packs = *function == Function::columns ? columns : columns * bytes / 16;
        const int64_t number = c.shape.elements() / columns;
        rows[i].push_back({*function,
                           c.is_forward() ? Direction::forward : Direction::backward,
                           bytes,
                           {packs - 1, packs},
                           {number - 1, number}});
      }
    }
  }
  return rows;
}

bool covers(const RowClass& c, const RowClass& row) {
  return c.function == row.function && c.direction == row.direction &&
         c.element_bytes == row.element_bytes && row.packs.within(c.packs) &&
         row.rows.within(c.rows);
}

const bench::Benchmark* benchmark_of(Function function) {
  static constexpr std::array kNames{"softmax", "scaled_masked_softmax", "scaled_masked_softmax",
                                     "softmax_dropout", "softmax"};
  return bench::find_benchmark(kNames.at(static_cast<size_t>(function)));
}

// Rows of the class that are `bytes` long.
int64_t number_of_rows(const RowClass& c, int64_t bytes, int multiprocessors) {
  if (c.rows.up_to != kAny) {
    return c.rows.up_to;
  }
  const int64_t some = 2 * int64_t{multiprocessors};
  const int64_t many =
      std::min(4 * some, kMaxProbeBytes / bytes);  // blocks that stay start up once
  return std::max({kProbeBytes / bytes, c.rows.above + 1, some, many});
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

TuningEntry::Functions suffix_of(Function function) {
  using enum TuningEntry::Functions;
  return std::array{plain, rules, tensor, dropout, all}.at(static_cast<size_t>(function));
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
  const auto used = rows_of_presets();
  std::ranges::stable_sort(classes, {}, [&](const RowClass& c) {
    const auto rank = std::ranges::find_if(used, [&](const auto& of_preset) {
      return std::ranges::any_of(of_preset, [&](const RowClass& row) { return covers(c, row); });
    });
    return std::tuple(c.element_bytes == 8, rank - used.begin(), c.rows.up_to != kAny, c.function);
  });
  return classes;
}

std::vector<RowClass> halves_of(const RowClass& c) {
  const auto [above, up_to] = c.packs;
  if (c.function == Function::columns || up_to == kAny || up_to < 2 * above ||
      up_to - above < kMinHalvedPacks) {
    return {};
  }
  RowClass shorter = c, longer = c;
  shorter.packs.up_to = longer.packs.above = above + (up_to - above) / 2;
  return {shorter, longer};
}

std::vector<Case> probes_of(const RowClass& c, int multiprocessors) {
  const int64_t pack = 16 / c.element_bytes;
  const int64_t longest = c.longest();
  std::vector<Case> probes;
  const auto add = [&](std::vector<int64_t> sizes, int64_t dim, Mask mask) {
    probes.push_back({.op = benchmark_of(c.function),
                      .direction = c.direction == Direction::forward ? bench::Direction::forward
                                                                     : bench::Direction::backward,
                      .shape = {.sizes = std::move(sizes), .dim = dim},
                      .dtype = dtype_of(c.element_bytes),
                      .mask = mask});
  };
  if (c.function == Function::columns) {
    for (const int64_t inner : {64, 77}) {  // the second is read element by element
      const int64_t rows = number_of_rows(c, longest * c.element_bytes, multiprocessors);
      add({std::max<int64_t>(rows / inner, 1), longest, inner}, 1, Mask::none);
    }
    return probes;
  }
  const int64_t rows = number_of_rows(c, longest * 16, multiprocessors);
  const int64_t keys = longest * pack;
  const int64_t fewest_keys = (c.packs.above + 1) * pack + 1;
  if (c.function == Function::attention) {
    if (c.rows.up_to == kAny && keys <= kMaxQueries) {
      for (const int64_t size : {keys, fewest_keys}) {
        add({std::max<int64_t>(rows / size, 1), size, size}, -1, Mask::causal);
      }
    } else {
      add({1, rows, keys}, -1, Mask::none);
    }
    const int64_t queries = std::min(rows, keys);
    add({rows / queries, queries, keys}, -1, Mask::padding);
    return probes;
  }
  if (c.function == Function::masks) {
    for (const int64_t size : {keys, keys - 1, fewest_keys}) {
      const int64_t queries = std::min(rows, size);
      add({rows / queries, queries, size}, -1, Mask::boolean);
    }
    return probes;
  }
  add({rows, keys}, -1, Mask::none);
  if (longest <= kShortPacks) {
    add({rows, keys - 1}, -1, Mask::none);
  }
  add({rows, fewest_keys}, -1, Mask::none);
  return probes;
}

}  // namespace warpfuse::host::tune
