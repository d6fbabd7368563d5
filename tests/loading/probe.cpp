// Loads libwarpfuse.so as a program that is not linked to it would, and calls it.
//
//   probe PATH          dlopens PATH
//   probe -             expects it to be there already (LD_PRELOAD)
//   probe PATH|- COPY   opens a second copy too
//
// Prints one line and exits with 0 when an operator, its header and the C symbols all answer, and a
// second copy says that it serves nothing.

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <dlfcn.h>
#include <warpfuse/info.h>
#include <warpfuse/softmax.h>

#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

template <typename Function>
Function* c_symbol(void* library, const char* name) {
  auto* symbol = reinterpret_cast<Function*>(dlsym(library, name));
  if (symbol == nullptr) {
    throw std::runtime_error(std::string("no symbol ") + name);
  }
  return symbol;
}

void require(bool condition, const char* what) {
  if (!condition) {
    throw std::runtime_error(what);
  }
}

void check_softmax() {
  const at::Tensor output = warpfuse::softmax(at::zeros({2, 4}), 1);
  require(output.eq(0.25).all().item<bool>(), "a wrong softmax");
}

void* open(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw std::runtime_error(dlerror());
  }
  return library;
}

void* probe(const std::string& path) {
  const bool before =
      c10::Dispatcher::singleton().findSchema({"warpfuse::softmax", ""}).has_value();
  void* library = RTLD_DEFAULT;
  if (path != "-") {
    require(!before, "the operators were there before the library");
    library = open(path);
  } else {
    require(before, "the library is not preloaded");
  }
  auto* const count = c_symbol<int64_t(const char*)>(library, "warpfuse_call_count");
  auto* const reset = c_symbol<void()>(library, "warpfuse_reset_call_counts");
  auto* const info = c_symbol<const char*()>(library, "warpfuse_build_info");
  auto* const error = c_symbol<const char*()>(library, "warpfuse_load_error");
  require(error() == nullptr, "the library says that it is not loaded");
  reset();
  check_softmax();
  require(count("softmax.cpu") == 1, "the C counter did not see the call");
  require(warpfuse::call_count("softmax.cpu") == 1, "the operator's counter did not see the call");
  require(count("no such counter") == -1, "an unknown counter is not -1");
  require(count(nullptr) == -1, "a null name is not -1");
  reset();
  require(count("softmax.cpu") == 0, "the counters were not reset");
  require(warpfuse::build_info() == info(), "build_info differs between operator and C symbol");
  std::puts(info());
  return library;
}

void probe_second(void* first, const std::string& path) {
  void* second = open(path);
  auto* const error = c_symbol<const char*()>(second, "warpfuse_load_error");
  require(error() != nullptr, "the second copy says that it is loaded");
  check_softmax();
  require(c_symbol<int64_t(const char*)>(first, "warpfuse_call_count")("softmax.cpu") == 1,
          "the first copy did not see the call");
  require(c_symbol<int64_t(const char*)>(second, "warpfuse_call_count")("softmax.cpu") == 0,
          "the second copy saw the call");
  std::puts(error());
  dlclose(second);
  check_softmax();
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    require(arguments.size() == 1 || arguments.size() == 2, "expected PATH, or PATH COPY");
    void* library = probe(arguments[0]);
    if (arguments.size() == 2) {
      probe_second(library, arguments[1]);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
