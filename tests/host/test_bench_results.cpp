// What the benchmark makes of its figures: percentiles, files, and the comparison with a baseline.

#include <algorithm>
#include <cmath>

#include "bench/benchmark.h"
#include "bench/results.h"
#include "bench/times.h"
#include "failure_of.h"
#include "runtime/files.h"
#include "support/catch.h"
#include "temporary_folder.h"

using namespace warpfuse::host::bench;
using warpfuse::host::ExitCode;
using warpfuse::host::read_file;

namespace {

constexpr const char* kShape = "64x4096x64@1";

Case row_case(const char* shape, Direction direction = Direction::forward) {
  return {find_benchmark("softmax"), direction, parse_shape(shape).value(), c10::ScalarType::Float,
          Mask::none};
}

// A row whose plugin variant has this ratio to the copy.
Json row(const char* shape, double copy_ratio, Direction direction = Direction::forward) {
  Json json = key_of(row_case(shape, direction));
  json["same_size_copy"] = {{"p50_us", 2.0}};
  json["variants"] = {{{"name", "aten"}, {"status", "ok"}, {"copy_ratio", 0.1}},
                      {{"name", "warpfuse"}, {"status", "ok"}, {"copy_ratio", copy_ratio}}};
  return json;
}

// Equal up to the rounding of a few operations.
struct Near {
  double value;
  friend bool operator==(double x, const Near& near) { return std::abs(x - near.value) < 1e-9; }
};

Near near(double value) { return {value}; }

Json document(const Json& rows) { return {{"format", kFormat}, {"rows", rows}}; }

}  // namespace

TEST_CASE("percentiles interpolate between neighbours", "[bench]") {
  CHECK(percentile({3.0}, 0.95) == 3.0);
  CHECK(percentile({4.0, 1.0, 2.0, 3.0}, 0.5) == 2.5);
  CHECK(percentile({10.0, 20.0}, 0.05) == near(10.5));
  std::vector<double> samples;
  for (int i = 100; i >= 0; --i) {
    samples.push_back(i);
  }
  const Percentiles found = percentiles_of(samples);
  CHECK(found.p5 == near(5));
  CHECK(found.p50 == near(50));
  CHECK(found.p95 == near(95));
}

TEST_CASE("a baseline is compared row by row, by the ratio to the copy", "[bench]") {
  const Json before = document(Json::array({row(kShape, 0.8), row("2x3", 0.5), row("9x9", 0.4)}));
  const Json now =
      Json::array({row("2x3", 0.49), row(kShape, 0.84), row("2x3", 0.5, Direction::backward)});
  const Comparison comparison = compare_with(before, now);
  REQUIRE(comparison.rows.size() == 2);
  CHECK(comparison.rows[0].relative() == near(0.98));
  CHECK(comparison.rows[1].relative() == near(1.05));
  REQUIRE(comparison.without_counterpart.size() == 1);
  CHECK(comparison.without_counterpart[0] == key_of(row_case("2x3", Direction::backward)));
  CHECK(report_comparison(comparison, 0.97));
  CHECK_FALSE(report_comparison(comparison, 0.99));
}

TEST_CASE("a row that is wrong now falls below any limit", "[bench]") {
  Json wrong = row("2x3", 0.5);
  wrong["variants"][1] = {{"name", "warpfuse"}, {"status", "wrong"}, {"reason", "?"}};
  const Comparison comparison =
      compare_with(document(Json::array({row("2x3", 0.5)})), Json::array({wrong}));
  REQUIRE(comparison.rows.size() == 1);
  CHECK(comparison.rows[0].now == 0);
  CHECK_FALSE(report_comparison(comparison, 0.01));
  // The other way round there is nothing to compare with.
  CHECK(compare_with(document(Json::array({wrong})), Json::array({row("2x3", 0.5)})).rows.empty());
}

TEST_CASE("a baseline without a common row is refused before anything runs", "[bench]") {
  const Json before = document(Json::array({row("2x3", 0.5)}));
  const auto check = [&](const char* shape) {
    return failure_of([&] { require_common_row(before, {row_case(shape)}, "old.json"); });
  };
  CHECK(check("2x3") == "nothing");
  CHECK(check("2x3@0").starts_with("2: --baseline old.json: expected a row of this run"));
}

TEST_CASE("a variant of a baseline that is none has no figure", "[bench]") {
  Json old = {{"rows", Json::array({row("2x3", 0.5)})}};
  for (const auto& [key, value] : {std::pair("name", Json(5)), std::pair("status", Json()),
                                   std::pair("copy_ratio", Json("fast"))}) {
    Json odd = old;
    for (Json& variant : odd["rows"][0]["variants"]) {
      variant[key] = value;
    }
    CHECK(compare_with(odd, old["rows"]).rows.empty());
  }
  CHECK(compare_with(old, old["rows"]).rows.size() == 1);
}

TEST_CASE("results are on disk after each row, whole", "[bench]") {
  const TemporaryFolder folder;
  const std::string json_path = folder.path() / "results.json";
  const std::string csv_path = folder.path() / "results.csv";
  ResultFile results(kFormat, {{"date", "2026-01-02"}}, {"rows"}, json_path, csv_path);
  CHECK(read_results(json_path)["rows"].empty());
  results.add("rows", row("2x3", 0.5));
  CHECK(read_results(json_path)["complete"] == false);
  CHECK(read_results(json_path)["rows"].size() == 1);
  results.add("rows", row(kShape, 0.25));
  results.set_complete();
  CHECK(read_results(json_path) == results.document());
  CHECK(read_results(json_path)["complete"] == true);
  CHECK(read_results(json_path)["date"] == "2026-01-02");
  const std::string csv = read_file(csv_path, ExitCode::usage);
  CHECK(std::ranges::count(csv, '\n') == 5);  // names, and two rows of two variants
  const size_t files = static_cast<size_t>(std::ranges::distance(
      std::filesystem::directory_iterator(folder.path()), std::filesystem::directory_iterator()));
  CHECK(files == 2);
}

TEST_CASE("a command line that is no UTF-8 is replaced in the file", "[bench]") {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "results.json";
  const ResultFile results(kFormat, {{"command", "--json r\xE9s"}}, {"rows"}, path);
  CHECK(read_results(path)["command"] == "--json r\xEF\xBF\xBDs");
}

TEST_CASE("CSV has a field for each column and quotes what needs it", "[bench]") {
  Json one = row("2x3", 0.5);
  one["variants"] = Json::array();
  one["variants"].push_back(
      {{"name", "warp"}, {"status", "unsupported"}, {"reason", "a \"b\", c"}});
  const std::string csv = csv_of(Json::array({one}));
  const size_t line = csv.find('\n') + 1;
  const std::string head = csv.substr(0, line);
  const std::string body = csv.substr(line);
  CHECK(body.starts_with("2x3,\"softmax\",\"forward\",-1,\"float32\",\"none\","));
  CHECK(body.ends_with(",\"a \"\"b\"\", c\"\n"));
  CHECK(std::ranges::count(head, ',') + 1 == std::ranges::count(body, ','));  // one in the text
}

TEST_CASE("files that are no results are refused", "[bench]") {
  const TemporaryFolder folder;
  const auto read = [&](const char* name) {
    return failure_of([&] { read_results(folder.path() / name); });
  };
  const std::string deep(100000, '[');
  folder.write("deep", deep);
  CHECK(read("deep").ends_with("deep: nested more than 100 levels deep"));
  CHECK(read("none").ends_with("none: cannot be read: No such file or directory"));
  folder.write("broken", "{\"format\": ");
  folder.write("other", "{\"format\": \"warpfuse-bench-0\", \"rows\": []}");
  folder.write("list", "[1]");
  folder.write("rows", R"({"format": "warpfuse-bench-1", "rows": [{"shape": [2, 3]}]})");
  for (const char* name : {"broken", "other", "list", "rows"}) {
    CHECK(read(name).ends_with(": expected a JSON file of format warpfuse-bench-1"));
  }
  CHECK(failure_of([&] {
          ResultFile(kFormat, Json::object(), {"rows"},
                     (folder.path() / "none" / "r.json").string());
        }).ends_with("r.json: cannot be written: No such file or directory"));
}
