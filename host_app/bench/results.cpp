#include "bench/results.h"

#include <fmt/chrono.h>
#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include <ctime>
#include <iomanip>

#include "generated/commit.h"
#include "runtime/decode/cuda_runtime.h"
#include "runtime/files.h"
#include "runtime/load/session.h"
#include "runtime/output.h"
#include "runtime/parse.h"

namespace warpfuse::host::bench {
namespace {

Json versions_of(const Plugin& plugin, const CudaRuntime* runtime) {
  Json versions{{"warpfuse", plugin.version},
                {"commit", kCommit},
                {"libtorch", running_libtorch()},
                {"cuda", Json()},
                {"driver", Json()}};
  if (runtime != nullptr) {
    versions["cuda"] = libtorch_cuda().value_or("");
    versions["driver"] = runtime->device().driver;
  }
  return versions;
}

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
  return fmt::to_string(fmt::streamed(std::quoted(value.get<std::string>(), '"', '"')));
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

Json key_of_row(const Json& row) {
  Json key;
  for (const char* field : kKeyFields) {
    key[field] = row[field];
  }
  if (row.contains(kLevelsField)) {
    key[kLevelsField] = row[kLevelsField];
  }
  return key;
}

// Of the plugin's variant; empty where it was not timed.
std::optional<double> copy_ratio_of(const Json& row) {
  for (const Json& variant : row["variants"]) {
    const Json ratio = variant.value("copy_ratio", Json());
    if (variant.value("name", Json()) == "warpfuse" && variant.value("status", Json()) == "ok" &&
        ratio.is_number() && ratio > 0) {
      return ratio.get<double>();
    }
  }
  return std::nullopt;
}

// The earlier figure of a row; empty where there is none.
std::optional<double> figure_of(const Json& baseline, const Json& key) {
  for (const Json& row : baseline["rows"]) {
    if (key_of_row(row) == key) {
      return copy_ratio_of(row);
    }
  }
  return std::nullopt;
}

}  // namespace

Json identity_of(const std::string& command, const Plugin& plugin, const CudaRuntime* runtime) {
  return {{"date", fmt::format("{:%F}", fmt::gmtime(std::time(nullptr)))},
          {"command", command},
          {"versions", versions_of(plugin, runtime)},
          {"device", runtime != nullptr ? describe_gpu(*runtime) : describe_cpu()}};
}

Json head_of(const std::string& command, const Plugin& plugin, const CudaRuntime* runtime,
             Timer& timer, const Timer::LargeCopy& copy) {
  Json head = identity_of(command, plugin, runtime);
  head["timing"] = timer.method();
  head["large_copy"] = {
      {"bytes", copy.bytes}, {"p50_us", copy.p50_us}, {"gb_per_s", copy.bytes_per_us() / 1e3}};
  if (const std::optional<double> empty_us = timer.empty_kernel_us()) {
    head["empty_kernel_us"] = *empty_us;
  }
  head["tuning"] = tuning_text();
  return head;
}

ResultFile::ResultFile(const char* format, const Json& head,
                       std::initializer_list<const char*> lists, std::optional<std::string> path,
                       std::optional<std::string> csv_path)
    : document_{{"format", format}, {"complete", false}},
      path_(std::move(path)),
      csv_path_(std::move(csv_path)) {
  document_.update(head);
  for (const char* list : lists) {
    document_[list] = Json::array();
  }
  save();
}

void ResultFile::add(const char* list, Json row) {
  document_[list].push_back(std::move(row));
  save();
}

void ResultFile::set_complete() {
  document_["complete"] = true;
  save();
}

void ResultFile::save() const {
  if (path_) {
    replace_file(*path_, dump(document_, 1) + "\n");
  }
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

Comparison compare_with(const Json& baseline, const Json& rows) {
  Comparison comparison;
  for (const Json& row : rows) {
    Json key = key_of_row(row);
    if (const std::optional<double> before = figure_of(baseline, key)) {
      comparison.rows.push_back({std::move(key), *before, copy_ratio_of(row).value_or(0)});
    } else {
      comparison.without_counterpart.push_back(std::move(key));
    }
  }
  return comparison;
}

void require_common_row(const Json& baseline, const std::vector<Case>& cases,
                        const std::string& path) {
  const bool common = std::ranges::any_of(
      cases, [&](const Case& c) { return figure_of(baseline, key_of(c)).has_value(); });
  if (!common) {
    fail(ExitCode::usage, "--baseline {}: expected a row of this run in it, found none", path);
  }
}

bool report_comparison(const Comparison& comparison, double limit) {
  bool pass = true;
  print("\n{:>8}  {:>8}  {:>6}  {}\n", "before", "now", "ratio",
        "time of the copy over the plugin's");
  for (const Compared& row : comparison.rows) {
    const bool holds = row.relative() >= limit;
    print("{:>8.3f}  {:>8.3f}  {:>6.3f}  {}{}\n", row.before, row.now, row.relative(),
          text_of(row.key), holds ? "" : "  BELOW");
    pass = pass && holds;
  }
  for (const Json& key : comparison.without_counterpart) {
    print("{:>8}  {:>8}  {:>6}  {}  not in the baseline\n", "-", "-", "-", text_of(key));
  }
  print("baseline: {}, {} rows compared, limit {:.3g}\n", pass ? "holds" : "BELOW",
        comparison.rows.size(), limit);
  return pass;
}

}  // namespace warpfuse::host::bench
