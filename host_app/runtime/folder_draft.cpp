#include "runtime/folder_draft.h"

#include <fmt/format.h>
#include <unistd.h>

namespace warpfuse::host {

namespace fs = std::filesystem;

FolderDraft::FolderDraft(const fs::path& out)
    : out_(out.has_filename() ? out : out.parent_path()),  // "out/" is "out"
      folder_(out_.string() + fmt::format(".{}.tmp", getpid())) {}

FolderDraft::~FolderDraft() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

void FolderDraft::take_name() const {
  const fs::path old = folder_.string() + ".old";
  const bool replaces = fs::exists(fs::symlink_status(out_));
  if (replaces) {
    fs::rename(out_, old);
  }
  std::error_code error;
  fs::rename(folder_, out_, error);
  if (error) {
    if (replaces) {
      fs::rename(old, out_);
    }
    throw std::system_error(error);
  }
  fs::remove_all(old);
}

}  // namespace warpfuse::host
