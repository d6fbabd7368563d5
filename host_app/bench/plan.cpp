#include "bench/plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "bench/presets.h"
#include "runtime/errors.h"

namespace warpfuse::host::bench {
namespace {

template <typename Value, size_t n>
std::string list_names(const Names<Value, n>& names) {
  std::vector<std::string_view> list;
  for (const auto& [value, name] : names) {
    list.push_back(name);
  }
  return fmt::format("{}", fmt::join(list, ", "));
}

template <typename Value, size_t n>
std::vector<Value> parse_names(const char* option, const Names<Value, n>& names,
                               const std::string& text) {
  std::vector<Value> values;
  for (const std::string& item : split_list(text)) {
    const std::optional<Value> value = value_in(names, item);
    if (!value) {
      fail(ExitCode::usage, "{}: expected a list of {}, got '{}'", option, list_names(names), item);
    }
    values.push_back(*value);
  }
  return values;
}

std::vector<Operator> every_operator() {
  std::vector<Operator> operators;
  for (const auto& [value, name] : kOperatorNames) {
    operators.push_back(value);
  }
  return operators;
}

// The operators to run of an entry. softmax and log_softmax take each other's shapes.
std::vector<Operator> chosen_operators(const std::string& asked, const Entry& entry) {
  if (asked == "all") {
    return entry.operators;
  }
  const Operator op = value_in(kOperatorNames, asked).value();
  const bool masked = op == Operator::scaled_masked_softmax;
  const bool listed = std::ranges::any_of(entry.operators, [&](Operator known) {
    return (known == Operator::scaled_masked_softmax) == masked;
  });
  return listed ? std::vector{op} : std::vector<Operator>{};
}

std::vector<Entry> entries_named(const std::string& item) {
  for (const Preset& preset : presets()) {
    if (preset.name == item) {
      return preset.entries;
    }
  }
  const std::optional<Shape> shape = parse_shape(item);
  if (!shape) {
    std::vector<std::string_view> names;
    for (const Preset& preset : presets()) {
      names.push_back(preset.name);
    }
    fail(ExitCode::usage,
         "--shapes: expected {}, or sizes such as 1024x8192 or 64x4096x64@1, got '{}'",
         fmt::join(names, ", "), item);
  }
  return {
      {every_operator(), {*shape}, {c10::ScalarType::Float}, {Mask::none}, {Direction::forward}}};
}

bool is_scores(const Shape& shape) {
  return shape.sizes.size() >= 2 && shape.sizes.size() <= 4 && shape.dim == -1;
}

void add_once(std::vector<Case>& cases, const Case& c) {
  if (std::ranges::find(cases, c) == cases.end()) {
    cases.push_back(c);
  }
}

void add_cases(std::vector<Case>& cases, Operator op, const Entry& entry) {
  for (const Shape& shape : entry.shapes) {
    for (const c10::ScalarType dtype : entry.dtypes) {
      for (const Mask mask : entry.masks) {
        for (const Direction direction : entry.directions) {
          add_once(cases, {op, direction, shape, dtype, mask});
        }
      }
    }
  }
}

}  // namespace

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> items;
  size_t start = 0;
  for (size_t comma = text.find(','); comma != std::string::npos; comma = text.find(',', start)) {
    items.push_back(text.substr(start, comma - start));
    start = comma + 1;
  }
  items.push_back(text.substr(start));
  return items;
}

std::vector<Case> plan(const Request& request) {
  const bool all = request.op == "all";
  if (!all && !value_in(kOperatorNames, request.op)) {
    fail(ExitCode::usage, "operator: expected {} or all, got '{}'", list_names(kOperatorNames),
         request.op);
  }
  std::optional<std::vector<c10::ScalarType>> dtypes;
  if (request.dtypes) {
    dtypes = parse_names("--dtype", kDtypeNames, *request.dtypes);
  }
  std::optional<std::vector<Mask>> masks;
  if (request.masks) {
    masks = parse_names("--mask", kMaskNames, *request.masks);
    if (request.op == "softmax" || request.op == "log_softmax") {
      fail(ExitCode::usage, "--mask: only scaled_masked_softmax takes a mask, not {}", request.op);
    }
  }
  std::vector<Case> cases;
  for (const std::string& item : split_list(request.shapes)) {
    for (Entry entry : entries_named(item)) {
      entry.dtypes = dtypes.value_or(entry.dtypes);
      if (request.backward) {
        entry.directions = {Direction::forward, Direction::backward};
      }
      for (const Operator op : chosen_operators(request.op, entry)) {
        const bool masked = op == Operator::scaled_masked_softmax;
        if (masked && !std::ranges::all_of(entry.shapes, is_scores)) {
          if (all) {
            continue;  // the other operators take it
          }
          fail(ExitCode::usage,
               "--shapes: expected 2 to 4 sizes, and no other dim than the last, for {}, got '{}'",
               request.op, item);
        }
        Entry chosen = entry;
        chosen.masks = masked ? masks.value_or(entry.masks) : std::vector{Mask::none};
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
