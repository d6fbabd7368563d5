// Files that are replaced as a whole, and what is beside them.

#include <csignal>

#include "failure_of.h"
#include "runtime/files.h"
#include "runtime/held_signals.h"
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

TEST_CASE("a file that is replaced keeps its permissions", "[files]") {
  const TemporaryFolder folder;
  folder.write("file", "old");
  const fs::path path = folder.path() / "file";
  fs::permissions(path, fs::perms::owner_read);
  replace_file(path, "text");
  CHECK(fs::status(path).permissions() == fs::perms::owner_read);
  CHECK(read_file(path, ExitCode::usage) == "text");
}

TEST_CASE("a file that is replaced leaves others alone", "[files]") {
  const TemporaryFolder folder;
  folder.write("file.part", "somebody's");
  require_replaceable(folder.path() / "file");
  replace_file(folder.path() / "file", "text");
  CHECK(read_file(folder.path() / "file.part", ExitCode::usage) == "somebody's");
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 2);
}

namespace {

volatile std::sig_atomic_t ended = 0;

// In place of the end of the program.
struct CountedSignal {
  CountedSignal() {
    struct sigaction action{};
    action.sa_handler = [](int) { ended = ended + 1; };
    sigaction(SIGTERM, &action, &before);
  }
  ~CountedSignal() { sigaction(SIGTERM, &before, nullptr); }

  struct sigaction before{};
};

}  // namespace

TEST_CASE("a signal leaves no half of a file, and then ends the program", "[files]") {
  const TemporaryFolder folder;
  folder.write("file", "old");
  const fs::path path = folder.path() / "file";
  const CountedSignal counted;
  ended = 0;
  {
    const HeldSignals held;
    std::raise(SIGTERM);
    CHECK(failure_of([&] { replace_file(path, std::string(size_t{32} << 20, 'x')); }) ==
          "130: " + path.string() + ": not written: interrupted");
    CHECK(ended == 0);
  }
  CHECK(ended == 1);
  CHECK(read_file(path, ExitCode::usage) == "old");
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 1);
  replace_file(path, "new");
  CHECK(read_file(path, ExitCode::usage) == "new");
  CHECK(ended == 1);
}
