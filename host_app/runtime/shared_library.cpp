#include "runtime/shared_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "runtime/errors.h"

namespace warpfuse::host {
namespace {

namespace fs = std::filesystem;

std::string library_being_opened;  // for the handler below, which takes no argument

[[noreturn]] void report_and_exit() {
  const std::exception_ptr exception = std::current_exception();
  const std::string reason =
      exception ? describe(exception, ExitCode::plugin).message : "its initialisation failed";
  const std::string line = fmt::format("warpfuse: error: {}: {}\n", library_being_opened, reason);
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  _exit(static_cast<int>(ExitCode::plugin));
}

// While one lives, std::terminate prints one line instead of aborting.
class TerminateGuard {
 public:
  explicit TerminateGuard(const fs::path& library)
      : previous_(std::set_terminate(report_and_exit)) {
    library_being_opened = library.string();
  }
  ~TerminateGuard() { std::set_terminate(previous_); }
  TerminateGuard(const TerminateGuard&) = delete;
  TerminateGuard& operator=(const TerminateGuard&) = delete;

 private:
  std::terminate_handler previous_;
};

}  // namespace

void open_library(const fs::path& path, std::string_view role) {
  // A path without a slash would be searched for in the system's folders.
  const fs::path absolute = fs::absolute(path);
  if (!fs::is_regular_file(absolute))
    fail(ExitCode::plugin, "{} {}: no such file", role, path.string());
  const TerminateGuard guard(path);
  const auto open = [&] { return dlopen(absolute.c_str(), RTLD_NOW | RTLD_LOCAL); };
  if (!translating_errors(ExitCode::plugin, path.string(), open)) {
    const char* reason = dlerror();
    fail(ExitCode::plugin, "{} cannot be loaded: {}", role, reason ? reason : path.string());
  }
}

fs::path file_of_global_symbol(const char* symbol) {
  void* address = dlsym(RTLD_DEFAULT, symbol);
  Dl_info info{};
  if (!address || dladdr(address, &info) == 0 || !info.dli_fname) return {};
  return info.dli_fname;
}

fs::path executable_path() {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/exe", error);
  if (error)
    fail(ExitCode::plugin, "/proc/self/exe cannot be read ({}): name the plugin with --plugin",
         error.message());
  return path;
}

bool file_contains(const fs::path& path, std::string_view text) {
  std::ifstream stream(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(stream)),
                          std::istreambuf_iterator<char>());
  const std::boyer_moore_horspool_searcher searcher(text.begin(), text.end());
  return std::search(bytes.begin(), bytes.end(), searcher) != bytes.end();
}

bool same_file(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) && !error;
}

}  // namespace warpfuse::host
