#pragma once

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <vector>

#include "runtime/errors.h"

namespace warpfuse::host {

// The whole of `text` as a number; empty where it is none.
template <typename Number = int64_t>
std::optional<Number> parse_number(std::string_view text) {
  Number value = 0;
  const auto [stop, error] = std::from_chars(text.begin(), text.end(), value);
  return error == std::errc() && stop == text.end() ? std::optional(value) : std::nullopt;
}

// Items between commas; empty ones are kept, so that they are refused by name.
inline std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> items{""};
  for (const char c : text) {
    if (c == ',') {
      items.emplace_back();
    } else {
      items.back() += c;
    }
  }
  return items;
}

// Deeper than any file of ours, and shallow enough for the stack of a program that prints, compares
// or frees the value.
inline constexpr int kMaxJsonDepth = 100;

// The value of a JSON text; discarded where the text is no JSON. Throws Error(code) for one that is
// nested too deeply; `where` names it.
template <typename Json = nlohmann::json>
Json parse_json(std::string_view text, ExitCode code, std::string_view where) {
  const auto check_depth = [&](int depth, nlohmann::json::parse_event_t /*event*/,
                               const Json& /*value*/) {
    if (depth > kMaxJsonDepth) {
      fail(code, "{}: nested more than {} levels deep", where, kMaxJsonDepth);
    }
    return true;
  };
  return Json::parse(text, check_depth, /*allow_exceptions=*/false);
}

// Text that is no UTF-8 is replaced.
template <typename Json>
std::string dump(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

// What a message shows of a value that is not as expected: its start.
template <typename Json>
std::string excerpt(const Json& json) {
  constexpr size_t kMaxShown = 60;
  const std::string text = dump(json);
  return text.size() > kMaxShown ? text.substr(0, kMaxShown) + "..." : text;
}

template <typename Json>
bool is_integer_within(const Json& value, int64_t low, int64_t high) {
  // Beside a signed number, an unsigned one would be taken for a signed one.
  const bool too_large = value.is_number_unsigned() &&
                         value.template get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  return value.is_number_integer() && !too_large && value >= low && value <= high;
}

}  // namespace warpfuse::host
