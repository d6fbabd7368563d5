#include "bench/results.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "runtime/errors.h"
#include "runtime/files.h"
#include "runtime/json_text.h"

namespace warpfuse::host::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::array kRowColumns{"operator", "direction",   "dim",         "dtype",        "mask",
                                 "floor_us", "least_bytes", "fused_bytes", "unfused_bytes"};
constexpr std::array kVariantColumns{
    "name",     "status",      "max_error",         "p50_us",
    "p5_us",    "p95_us",      "event_p50_us",      "default_malloc_p50_us",
    "gb_per_s", "share",       "copy_ratio",        "speedup",
    "kernels",  "extra_bytes", "discarded_samples", "throttled",
    "reason"};

// A field of an object as CSV has it; empty where there is none.
std::string field(const Json& object, const char* key) {
  if (!object.contains(key) || object[key].is_null()) {
    return "";
  }
  const Json& value = object[key];
  if (!value.is_string()) {
    return value.dump();
  }
  std::string quoted(1, '"');
  for (const char letter : value.get<std::string>()) {
    quoted.append(letter == '"' ? 2 : 1, letter);
  }
  quoted.push_back('"');
  return quoted;
}

bool is_row(const Json& row) {
  const auto has = [&](const char* field) { return row.contains(field); };
  return row.is_object() && std::ranges::all_of(kKeyFields, has) && has("variants") &&
         row["variants"].is_array() && std::ranges::all_of(row["variants"], &Json::is_object);
}

bool are_results(const Json& document) {
  return document.is_object() && document.contains("format") && document["format"] == kFormat &&
         document.contains("rows") && document["rows"].is_array() &&
         std::ranges::all_of(document["rows"], is_row);
}

}  // namespace

Results::Results(const Json& head, std::optional<std::string> json_path,
                 std::optional<std::string> csv_path)
    : json_(kFormat, head, {"rows"}, std::move(json_path)), csv_path_(std::move(csv_path)) {
  save_csv();
}

void Results::add(Json row) {
  json_.add("rows", std::move(row));
  save_csv();
}

void Results::set_complete() { json_.set_complete(); }

void Results::save_csv() const {
  if (csv_path_) {
    replace_file(*csv_path_, csv_of(rows()));
  }
}

std::string csv_of(const Json& rows) {
  std::string text = fmt::format("shape,{},same_size_copy_p50_us,{}\n", fmt::join(kRowColumns, ","),
                                 fmt::join(kVariantColumns, ","));
  for (const Json& row : rows) {
    for (const Json& variant : row["variants"]) {
      text += shape_in(row).sizes_text();
      for (const char* column : kRowColumns) {
        text.append(1, ',').append(field(row, column));
      }
      text.append(1, ',').append(field(row["same_size_copy"], "p50_us"));
      for (const char* column : kVariantColumns) {
        text.append(1, ',').append(field(variant, column));
      }
      text.push_back('\n');
    }
  }
  return text;
}

Json read_results(const fs::path& path) {
  const Json document =
      parse_json<Json>(read_file(path, ExitCode::usage), ExitCode::usage, path.string());
  if (!are_results(document)) {
    fail(ExitCode::usage, "{}: expected a JSON file of format {}", path.string(), kFormat);
  }
  return document;
}

}  // namespace warpfuse::host::bench
