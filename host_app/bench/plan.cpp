#include "bench/plan.h"

#include <fmt/ranges.h>

#include <ranges>
#include <sstream>

#include "bench/presets.h"
#include "runtime/parse.h"

namespace warpfuse::host::bench {
namespace {

template <typename Range, typename Name>
std::string listed(const Range& range, Name name) {
  return fmt::format("{}", fmt::join(range | std::views::transform(name), ", "));
}

template <typename Value, size_t n>
std::vector<Value> parse_names(const char* option, const Names<Value, n>& names,
                               const std::string& text) {
  std::vector<Value> values;
  for (const std::string& item : split_list(text)) {
    const std::optional<Value> value = value_in(names, item);
    if (!value) {
      fail(ExitCode::usage, "{}: expected a list of {}, got '{}'", option,
           listed(names, &std::pair<Value, std::string_view>::second), item);
    }
    values.push_back(*value);
  }
  return values;
}

using Operators = std::vector<const Benchmark*>;

// One operator, or null for all.
const Benchmark* parse_operator(const std::string& text) {
  const Benchmark* op = find_benchmark(text);
  if (op == nullptr && text != "all") {
    fail(ExitCode::usage, "operator: expected {} or all, got '{}'",
         listed(benchmarks(), &Benchmark::name), text);
  }
  return op;
}

// Rows that share operators, dtypes, masks and directions.
struct Entry {
  Operators operators;
  std::vector<Shape> shapes;
  std::vector<Precision> dtypes;
  std::vector<Mask> masks;
  std::vector<Direction> directions;
};

// The shapes of a preset.
std::vector<Shape> parse_shapes(const std::string& text) {
  constexpr int64_t kElements = int64_t{64} * 1024 * 1024;
  std::vector<Shape> shapes;
  for (const std::string& item : split_list(text)) {
    const std::optional<int64_t> columns = parse_number(item);
    const std::optional<Shape> shape =
        columns ? parse_shape(fmt::format("{}x{}", kElements / *columns, item)) : parse_shape(item);
    // value() throws where a preset has no shape.
    shapes.push_back(shape.value());  // NOLINT(bugprone-unchecked-optional-access)
  }
  return shapes;
}

Operators parse_operators(const std::string& text) {
  Operators operators;
  for (const std::string& item : split_list(text)) {
    operators.push_back(parse_operator(item));
  }
  return operators;
}

// The entries of a preset, one per line.
std::vector<Entry> parse_preset(const Preset& preset) {
  std::vector<Entry> entries;
  std::istringstream lines{std::string(preset.rows)};
  std::string op, shapes, dtypes, masks, directions;
  while (lines >> op >> shapes >> dtypes >> masks >> directions) {
    entries.push_back({.operators = parse_operators(op),
                       .shapes = parse_shapes(shapes),
                       .dtypes = parse_names("dtype", kDtypeNames, dtypes),
                       .masks = parse_names("mask", kMaskNames, masks),
                       .directions = parse_names("direction", kDirectionNames, directions)});
  }
  return entries;
}

// The operators to run of an entry; others of their family take its shapes too.
Operators chosen_operators(const Benchmark* asked, const Entry& entry) {
  if (asked == nullptr) {
    return entry.operators;
  }
  const bool listed = std::ranges::any_of(
      entry.operators, [&](const Benchmark* known) { return known->family == asked->family; });
  return listed ? Operators{asked} : Operators{};
}

std::vector<Entry> entries_named(const std::string& item) {
  const auto preset = std::ranges::find(kPresets, item, &Preset::name);
  if (preset != kPresets.end()) {
    return parse_preset(*preset);
  }
  const std::optional<Shape> shape = parse_shape(item);
  if (!shape) {
    fail(ExitCode::usage,
         "--shapes: expected {}, or sizes such as 1024x8192 or 64x4096x64@1, got '{}'",
         listed(kPresets, &Preset::name), item);
  }
  return {{{benchmarks().begin(), benchmarks().end()},
           {*shape},
           {Precision()},
           {Mask::none},
           {Direction::forward}}};
}

bool takes(const Benchmark* op, const Shape& shape) {
  return op->levels == !shape.levels.empty() && op->takes(shape);
}

bool takes(const Benchmark* op, Mask mask) {
  return mask == Mask::none || std::ranges::find(op->masks, mask) != op->masks.end();
}

// The masks of an entry that an operator takes; none where it takes none of them.
std::vector<Mask> masks_taken(const Benchmark* op, std::vector<Mask> masks) {
  std::erase_if(masks, [&](Mask mask) { return !takes(op, mask); });
  return masks.empty() ? std::vector{Mask::none} : masks;
}

void require_masks(const Benchmark* op, const std::vector<Mask>& masks) {
  for (const Mask mask : masks) {
    if (!takes(op, mask)) {
      std::vector<std::string> known{"none"};
      for (const Mask each : op->masks) {
        known.push_back(name_in(kMaskNames, each));
      }
      fail(ExitCode::usage, "--mask: expected {} for {}, got '{}'", fmt::join(known, ", "),
           op->name, name_in(kMaskNames, mask));
    }
  }
}

void require_dtypes(const Benchmark* op, const std::vector<Precision>& dtypes) {
  if (!op->tf32 && std::ranges::any_of(dtypes, &Precision::tf32)) {
    fail(ExitCode::usage, "--dtype: only linear_dropout_softmax takes tf32, not {}", op->name);
  }
  if (!op->float64 && std::ranges::count(dtypes, Precision{at::kDouble}) > 0) {
    fail(ExitCode::usage, "--dtype: {} takes no float64", op->name);
  }
}

void add_cases(std::vector<Case>& cases, const Benchmark* op, const Entry& entry) {
  for (const Shape& shape : entry.shapes) {
    for (const auto& [dtype, tf32] : entry.dtypes) {
      if ((tf32 && !op->tf32) || (dtype == at::kDouble && !op->float64)) {
        continue;
      }
      for (const Mask mask : entry.masks) {
        for (const Direction direction : entry.directions) {
          add_once(cases, {op, direction, shape, dtype, mask, tf32});
        }
      }
    }
  }
}

}  // namespace

std::vector<int64_t> integer_list(const std::string& option, const std::vector<std::string>& items,
                                  int64_t most) {
  std::vector<int64_t> values;
  for (const std::string& item : items) {
    const std::optional<int64_t> number = parse_number(item);
    if (!number || *number < 1 || *number > most) {
      fail(ExitCode::usage, "{}: expected integers of 1..{}, got '{}'", option, most, item);
    }
    add_once(values, *number);
  }
  return values;
}

std::vector<Case> plan(const Request& request) {
  const Benchmark* const asked = parse_operator(request.op);
  std::optional<std::vector<Precision>> dtypes;
  if (request.dtypes) {
    dtypes = parse_names("--dtype", kDtypeNames, *request.dtypes);
    if (asked != nullptr) {
      require_dtypes(asked, *dtypes);
    }
  }
  std::optional<std::vector<Mask>> masks;
  if (request.masks) {
    masks = parse_names("--mask", kMaskNames, *request.masks);
    if (asked != nullptr) {
      require_masks(asked, *masks);
    }
  }
  std::vector<Case> cases;
  for (const std::string& item : split_list(request.shapes)) {
    for (Entry entry : entries_named(item)) {
      entry.dtypes = dtypes.value_or(entry.dtypes);
      for (const Benchmark* op : chosen_operators(asked, entry)) {
        if (!std::ranges::all_of(entry.shapes, [&](const Shape& s) { return takes(op, s); })) {
          if (asked == nullptr) {
            continue;  // the other operators take it
          }
          fail(ExitCode::usage, "--shapes: expected {} for {}, got '{}'",
               op->shapes.empty() ? "sizes without levels" : op->shapes, request.op, item);
        }
        Entry chosen = entry;
        if (request.backward) {
          chosen.directions = {op->directions.begin(), op->directions.end()};
        }
        chosen.masks = masks_taken(op, masks.value_or(entry.masks));
        add_cases(cases, op, chosen);
      }
    }
  }
  if (cases.empty()) {
    fail(ExitCode::usage, "--shapes {}: has no row of {}", request.shapes, request.op);
  }
  return cases;
}

}  // namespace warpfuse::host::bench
