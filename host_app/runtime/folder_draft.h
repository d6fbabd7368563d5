#pragma once

#include <filesystem>

namespace warpfuse::host {

// A folder that is written under another name, until it takes its own; gone with this object
// otherwise.
class FolderDraft {
 public:
  explicit FolderDraft(const std::filesystem::path& out);
  ~FolderDraft();
  FolderDraft(const FolderDraft&) = delete;
  FolderDraft& operator=(const FolderDraft&) = delete;

  const std::filesystem::path& folder() const { return folder_; }

  // What has the name is set aside first, and comes back where that fails. Throws
  // std::system_error.
  void take_name() const;

 private:
  std::filesystem::path out_, folder_;
};

}  // namespace warpfuse::host
