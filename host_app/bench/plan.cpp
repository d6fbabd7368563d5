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

// One operator, or all.
std::optional<Operator> parse_operator(const std::string& text) {
  const std::optional<Operator> op = value_in(kOperatorNames, text);
  if (!op && text != "all") {
    fail(ExitCode::usage, "operator: expected {} or all, got '{}'", list_names(kOperatorNames),
         text);
  }
  return op;
}

// Operators with the arguments of softmax take each other's shapes; the others have their own.
Operator family(Operator op) {
  const bool plain = op == Operator::log_softmax || op == Operator::dropout_softmax ||
                     op == Operator::softmax_dropout;
  return plain ? Operator::softmax : op;
}

// The operators to run of an entry.
std::vector<Operator> chosen_operators(std::optional<Operator> asked, const Entry& entry) {
  if (!asked) {
    return entry.operators;
  }
  const bool listed = std::ranges::any_of(
      entry.operators, [&](Operator known) { return family(known) == family(*asked); });
  return listed ? std::vector{*asked} : std::vector<Operator>{};
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
  return {{every_operator(), {*shape}, {Precision()}, {Mask::none}, {Direction::forward}}};
}

// The shapes that an operator takes, in words; none for one that takes all.
const char* limits_of(Operator op) {
  switch (op) {
    case Operator::scaled_masked_softmax:
      return "2 to 4 sizes, and no other dim than the last,";
    case Operator::fused_logprob:
      return "at least 2 sizes, and no other dim than the last,";
    case Operator::linear_dropout_softmax:
      return "3 sizes, rows x in x out, and no other dim than the last,";
    default:
      return nullptr;
  }
}

bool takes(Operator op, const Shape& shape) {
  const size_t rank = shape.sizes.size();
  switch (op) {
    case Operator::scaled_masked_softmax:
      return rank >= 2 && rank <= 4 && shape.dim == -1;
    case Operator::fused_logprob:
      return rank >= 2 && shape.dim == -1;
    case Operator::linear_dropout_softmax:
      return rank == 3 && shape.dim == -1;
    default:
      return true;
  }
}

// Those that --backward asks for.
std::vector<Direction> every_direction(Operator op) {
  switch (op) {
    case Operator::fused_logprob:
      return {Direction::forward, Direction::backward, Direction::both};
    case Operator::linear_dropout_softmax:
      return {Direction::forward, Direction::both};
    default:
      return {Direction::forward, Direction::backward};
  }
}

void add_once(std::vector<Case>& cases, const Case& c) {
  if (std::ranges::find(cases, c) == cases.end()) {
    cases.push_back(c);
  }
}

void add_cases(std::vector<Case>& cases, Operator op, const Entry& entry) {
  for (const Shape& shape : entry.shapes) {
    for (const auto& [dtype, tf32] : entry.dtypes) {
      if (tf32 && op != Operator::linear_dropout_softmax) {
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
  const std::optional<Operator> asked = parse_operator(request.op);
  std::optional<std::vector<Precision>> dtypes;
  if (request.dtypes) {
    dtypes = parse_names("--dtype", kDtypeNames, *request.dtypes);
    if (asked && asked != Operator::linear_dropout_softmax &&
        std::ranges::any_of(*dtypes, &Precision::tf32)) {
      fail(ExitCode::usage, "--dtype: only linear_dropout_softmax takes tf32, not {}", request.op);
    }
  }
  std::optional<std::vector<Mask>> masks;
  if (request.masks) {
    masks = parse_names("--mask", kMaskNames, *request.masks);
    if (asked && asked != Operator::scaled_masked_softmax &&
        *masks != std::vector<Mask>{Mask::none}) {
      fail(ExitCode::usage, "--mask: only scaled_masked_softmax takes a mask, not {}", request.op);
    }
  }
  std::vector<Case> cases;
  for (const std::string& item : split_list(request.shapes)) {
    for (Entry entry : entries_named(item)) {
      entry.dtypes = dtypes.value_or(entry.dtypes);
      for (const Operator op : chosen_operators(asked, entry)) {
        if (!std::ranges::all_of(entry.shapes,
                                 [op](const Shape& shape) { return takes(op, shape); })) {
          if (!asked) {
            continue;  // the other operators take it
          }
          fail(ExitCode::usage, "--shapes: expected {} for {}, got '{}'", limits_of(op), request.op,
               item);
        }
        Entry chosen = entry;
        if (request.backward) {
          chosen.directions = every_direction(op);
        }
        const bool masked = op == Operator::scaled_masked_softmax;
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
