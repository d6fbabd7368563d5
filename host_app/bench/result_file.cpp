#include "bench/result_file.h"

#include <utility>

#include "runtime/files.h"

namespace warpfuse::host::bench {

ResultFile::ResultFile(const char* format, const Json& head,
                       std::initializer_list<const char*> lists, std::optional<std::string> path)
    : document_{{"format", format}, {"complete", false}}, path_(std::move(path)) {
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
    replace_file(*path_, document_.dump(1) + "\n");
  }
}

}  // namespace warpfuse::host::bench
