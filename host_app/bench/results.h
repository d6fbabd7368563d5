#pragma once

#include <initializer_list>

#include "bench/timer.h"
#include "runtime/load/plugin.h"

namespace warpfuse::host::bench {

// Date, command, versions and device of a run. `runtime` is null on the CPU.
Json identity_of(const std::string& command, const Plugin& plugin, const CudaRuntime* runtime);

// The same with timing method, tuning table and large copy: all of the JSON but the rows.
Json head_of(const std::string& command, const Plugin& plugin, const CudaRuntime* runtime,
             Timer& timer, const Timer::LargeCopy& copy);

inline constexpr const char* kFormat = "warpfuse-bench-1";

// A run's JSON, and the files that it and its rows as CSV are kept in, if any: written anew after
// each addition, under another name first, so that a reader, or a crash, never finds half a file.
class ResultFile {
 public:
  // `head`: everything but "format", "complete" and the lists, which start empty. Throws
  // Error(output) when a file cannot be written.
  ResultFile(const char* format, const Json& head, std::initializer_list<const char*> lists,
             std::optional<std::string> path, std::optional<std::string> csv_path = {});

  void add(const char* list, Json row);
  void set_complete();
  const Json& document() const { return document_; }
  const Json& rows() const { return document_["rows"]; }

 private:
  void save() const;

  Json document_;
  std::optional<std::string> path_, csv_path_;
};

// One line for each row and variant, after a line of names.
std::string csv_of(const Json& rows);

// Throws Error(usage) for a file that cannot be read or is not of this format.
Json read_results(const std::filesystem::path& path);

// The plugin's figure in one row, now and in an earlier run: the ratio of the same-size copy's time
// to the variant's, so that a faster memory does not pass for a better kernel.
struct Compared {
  Json key;
  double before;
  double now;  // 0 where the plugin's result is wrong or missing
  double relative() const { return now / before; }
};

struct Comparison {
  std::vector<Compared> rows;
  std::vector<Json> without_counterpart;  // keys of rows that the earlier run does not have
};

// Matches rows by operator, direction, shape, dim, dtype and mask.
Comparison compare_with(const Json& baseline, const Json& rows);

// Throws Error(usage) when none of the rows to come is in the baseline.
void require_common_row(const Json& baseline, const std::vector<Case>& cases,
                        const std::string& path);

// Prints the rows, and which are below the limit. True when none is.
bool report_comparison(const Comparison& comparison, double limit);

}  // namespace warpfuse::host::bench
