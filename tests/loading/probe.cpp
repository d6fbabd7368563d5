// Loads libwarpfuse.so as a program that is not linked to it would, and calls it.
//
//   probe PATH   dlopens PATH
//   probe        expects it to be there already (LD_PRELOAD)
//
// Prints one line and exits with 0 when an operator, its header and the C symbols all answer.

#include <ATen/ATen.h>
#include <dlfcn.h>
#include <warpfuse/info.h>
#include <warpfuse/softmax.h>

#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>

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

void probe(const char* path) {
  const bool before =
      c10::Dispatcher::singleton().findSchema({"warpfuse::softmax", ""}).has_value();
  void* library = RTLD_DEFAULT;
  if (path != nullptr) {
    require(!before, "the operators were there before the library");
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      throw std::runtime_error(dlerror());
    }
  } else {
    require(before, "the library is not preloaded");
  }
  auto* const count = c_symbol<int64_t(const char*)>(library, "warpfuse_call_count");
  auto* const reset = c_symbol<void()>(library, "warpfuse_reset_call_counts");
  auto* const info = c_symbol<const char*()>(library, "warpfuse_build_info");
  reset();
  const at::Tensor output = warpfuse::softmax(at::zeros({2, 4}), 1);
  require(output.eq(0.25).all().item<bool>(), "a wrong softmax");
  require(count("softmax.cpu") == 1, "the C counter did not see the call");
  require(warpfuse::call_count("softmax.cpu") == 1, "the operator's counter did not see the call");
  require(count("no such counter") == -1, "an unknown counter is not -1");
  require(count(nullptr) == -1, "a null name is not -1");
  reset();
  require(count("softmax.cpu") == 0, "the counters were not reset");
  require(warpfuse::build_info() == info(), "build_info differs between operator and C symbol");
  std::puts(info());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    probe(argc > 1 ? argv[1] : nullptr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
