// Files that are replaced as a whole, and what is beside them.

#include "failure_of.h"
#include "runtime/files.h"
#include "support/catch.h"
#include "temporary_folder.h"

using namespace warpfuse::host;
namespace fs = std::filesystem;

TEST_CASE("a file is replaced, and a link to one stays a link", "[files]") {
  const TemporaryFolder folder;
  folder.write("file", "old");
  const fs::path link = folder.path() / "link", dangling = folder.path() / "dangling";
  fs::create_symlink("file", link);
  fs::create_symlink("new", dangling);
  for (const fs::path& path : {link, dangling}) {
    require_replaceable(path);
    replace_file(path, "text");
    CHECK(fs::is_symlink(path));
    CHECK(read_file(path, ExitCode::usage) == "text");
  }
  CHECK(read_file(folder.path() / "file", ExitCode::usage) == "text");
  CHECK(fs::exists(folder.path() / "new"));
}

TEST_CASE("a file that is replaced leaves others alone", "[files]") {
  const TemporaryFolder folder;
  folder.write("file.part", "somebody's");
  require_replaceable(folder.path() / "file");
  replace_file(folder.path() / "file", "text");
  CHECK(read_file(folder.path() / "file.part", ExitCode::usage) == "somebody's");
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 2);
}
