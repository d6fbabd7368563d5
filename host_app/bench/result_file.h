#pragma once

#include <initializer_list>
#include <optional>
#include <string>

#include "bench/case.h"
#include "bench/timer.h"
#include "runtime/load/plugin.h"

namespace warpfuse::host::bench {

// Date, command, versions and device of a run. `runtime` is null on the CPU.
Json identity_of(const std::string& command, const Plugin& plugin, const CudaRuntime* runtime);

// The same with timing method, tuning table and large copy: all of the JSON but the rows.
Json head_of(const std::string& command, const Plugin& plugin, const CudaRuntime* runtime,
             Timer& timer, const Timer::LargeCopy& copy);

// A run's JSON, and the file that it is kept in, if any: written anew after each addition, under
// another name first, so that a reader, or a crash, never finds half a file.
class ResultFile {
 public:
  // `head`: everything but "format", "complete" and the lists, which start empty. Throws
  // Error(output) when the file cannot be written.
  ResultFile(const char* format, const Json& head, std::initializer_list<const char*> lists,
             std::optional<std::string> path);

  void add(const char* list, Json row);
  void set_complete();
  const Json& document() const { return document_; }

 private:
  void save() const;

  Json document_;
  std::optional<std::string> path_;
};

}  // namespace warpfuse::host::bench
