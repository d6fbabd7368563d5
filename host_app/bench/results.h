#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "bench/case.h"
#include "bench/result_file.h"

namespace warpfuse::host::bench {

inline constexpr const char* kFormat = "warpfuse-bench-1";

// What a run has found so far, and the files that it is kept in: its JSON (result_file.h), and the
// same rows as CSV.
class Results {
 public:
  // `head`: everything of the JSON but "format", "complete" and "rows". Throws Error(usage) when a
  // file cannot be written.
  Results(const Json& head, std::optional<std::string> json_path,
          std::optional<std::string> csv_path);

  void add(Json row);
  void set_complete();
  const Json& document() const { return json_.document(); }
  const Json& rows() const { return document()["rows"]; }

 private:
  void save_csv() const;

  ResultFile json_;
  std::optional<std::string> csv_path_;
};

// One line for each row and variant, after a line of names.
std::string csv_of(const Json& rows);

// Throws Error(usage) for a file that cannot be read or is not of this format.
Json read_results(const std::filesystem::path& path);

}  // namespace warpfuse::host::bench
