#include "common/registration.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>
#include <link.h>

#include <cstdio>
#include <string>

namespace warpfuse {
namespace {

constexpr const char* kExported = "warpfuse_build_info";  // by every libwarpfuse.so

/// The file that holds `address`, as the loader knows it.
std::string file_of(const void* address) {
  Dl_info info{};
  return dladdr(address, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

/// The other copy among all loaded libraries, those that were opened with RTLD_LOCAL too.
std::string other_copy(const std::string& own) {
  void* const program = dlopen(nullptr, RTLD_LAZY);
  link_map* library = nullptr;
  dlinfo(program, RTLD_DI_LINKMAP, static_cast<void*>(&library));
  std::string found = "another library";
  for (; library != nullptr; library = library->l_next) {
    if (void* const handle = dlopen(library->l_name, RTLD_LAZY | RTLD_NOLOAD)) {
      const void* const symbol = dlsym(handle, kExported);
      const std::string file = symbol != nullptr ? file_of(symbol) : "";
      if (!file.empty() && file != own) {
        found = file;
      }
      dlclose(handle);
    }
  }
  dlclose(program);
  return found;
}

std::string find_error() {
  if (!c10::Dispatcher::singleton().findSchema({"warpfuse::build_info", ""}).has_value()) {
    return "";
  }
  const std::string own = file_of(reinterpret_cast<const void*>(&load_error));
  std::string error = "warpfuse: " + own + " cannot be loaded: " + other_copy(own) +
                      " is in this process already, and its operators stay in use";
  std::fprintf(stderr, "%s\n", error.c_str());
  return error;
}

}  // namespace

const char* load_error() {
  // Found before this copy's first registration, so what is there is another's.
  static const std::string error = find_error();
  return error.empty() ? nullptr : error.c_str();
}

std::optional<torch::Library> register_in_first_copy(torch::Library::Kind kind,
                                                     std::optional<c10::DispatchKey> key,
                                                     void (*define)(torch::Library&),
                                                     const char* file, uint32_t line) {
  if (load_error() != nullptr) {
    return std::nullopt;
  }
  torch::Library library(kind, "warpfuse", key, file, line);
  define(library);
  return library;
}

}  // namespace warpfuse
