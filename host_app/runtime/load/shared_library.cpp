#include "runtime/load/shared_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <functional>

#include "runtime/errors.h"
#include "runtime/files.h"

namespace warpfuse::host {
namespace {

namespace fs = std::filesystem;

// glibc declares dlopen as never throwing, so that a compiler may drop the handlers around a direct
// call; but an exception of a static initialiser does pass through it.
void* (*volatile const throwing_dlopen)(const char*, int) = dlopen;

}  // namespace

void* open_library(const fs::path& path, std::string_view role, ExitCode code) {
  // A path without a slash would be searched for in the system's folders.
  const fs::path absolute = fs::absolute(path);
  if (!fs::is_regular_file(absolute)) {
    fail(code, "{} {}: no such file", role, path.string());
  }
  const auto open = [&] { return throwing_dlopen(absolute.c_str(), RTLD_NOW | RTLD_LOCAL); };
  void* library = translating_errors(code, fmt::format("{} {}", role, path.string()), open);
  if (!library) {
    const char* reason = dlerror();
    fail(code, "{} cannot be loaded: {}", role, reason ? reason : path.string());
  }
  return library;
}

bool try_open_library(const char* name) {
  return throwing_dlopen(name, RTLD_NOW | RTLD_LOCAL) != nullptr;
}

fs::path file_of_global_symbol(const char* symbol) {
  void* address = dlsym(RTLD_DEFAULT, symbol);
  Dl_info info{};
  if (!address || dladdr(address, &info) == 0 || !info.dli_fname) {
    return {};
  }
  return info.dli_fname;
}

fs::path executable_path() {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/exe", error);
  if (error) {
    fail(ExitCode::plugin, "/proc/self/exe cannot be read ({}): name the plugin with --plugin",
         error.message());
  }
  return path;
}

std::optional<fs::path> find_beside_program(const char* name) {
  const fs::path folder = executable_path().parent_path();
  const std::array candidates{folder / name, folder.parent_path() / "lib" / name};
  const auto* const found = std::ranges::find_if(
      candidates, [](const fs::path& candidate) { return fs::is_regular_file(candidate); });
  return found == candidates.end() ? std::nullopt : std::optional(*found);
}

bool file_contains(const fs::path& path, std::string_view text) {
  const std::string bytes = read_file(path, ExitCode::plugin);
  const std::boyer_moore_horspool_searcher searcher(text.begin(), text.end());
  return std::search(bytes.begin(), bytes.end(), searcher) != bytes.end();
}

bool same_file(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) && !error;
}

}  // namespace warpfuse::host
