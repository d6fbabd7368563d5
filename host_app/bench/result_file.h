#pragma once

#include <initializer_list>
#include <optional>
#include <string>

#include "bench/case.h"

namespace warpfuse::host::bench {

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
