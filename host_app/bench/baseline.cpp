#include "bench/baseline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "runtime/errors.h"
#include "runtime/output.h"

namespace warpfuse::host::bench {
namespace {

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
    if (variant.value("name", "") == "warpfuse" && variant.value("status", "") == "ok" &&
        variant.contains("copy_ratio") && variant["copy_ratio"].is_number() &&
        variant["copy_ratio"] > 0) {
      return variant["copy_ratio"].get<double>();
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

std::string text_of_key(const Json& key) {
  return fmt::format("{} {} {} {} {}", key["operator"].get<std::string>(),
                     key["direction"].get<std::string>(), shape_in(key).text(),
                     key["dtype"].get<std::string>(), key["mask"].get<std::string>());
}

}  // namespace

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
          text_of_key(row.key), holds ? "" : "  BELOW");
    pass = pass && holds;
  }
  for (const Json& key : comparison.without_counterpart) {
    print("{:>8}  {:>8}  {:>6}  {}  not in the baseline\n", "-", "-", "-", text_of_key(key));
  }
  print("baseline: {}, {} rows compared, limit {:.3g}\n", pass ? "holds" : "BELOW",
        comparison.rows.size(), limit);
  return pass;
}

}  // namespace warpfuse::host::bench
