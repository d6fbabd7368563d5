#include "runtime/model.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <malloc.h>
#include <torch/csrc/jit/passes/freeze_module.h>
#include <torch/csrc/jit/passes/tensorexpr_fuser.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <array>

#include "runtime/errors.h"
#include "runtime/files.h"
#include "runtime/sha256.h"

namespace warpfuse::host {
namespace {

constexpr std::string_view kZipMagic = "PK\x03\x04";

class QuietWarnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

void check_zip_magic(std::istream& stream, const std::string& file) {
  std::array<char, kZipMagic.size()> start{};
  stream.read(start.data(), start.size());
  if (std::string_view(start.data(), static_cast<size_t>(stream.gcount())) != kZipMagic) {
    fail(ExitCode::model, "{}: not a TorchScript file (no zip archive)", file);
  }
}

void check_sha256(std::istream& stream, const std::string& file, const std::string& expected) {
  const std::string found = sha256_hex(stream);
  if (found != expected) {
    fail(ExitCode::model, "{}: damaged or replaced: its SHA-256 is {}..., bundle.json says {}...",
         file, found.substr(0, 16), expected.substr(0, 16));
  }
}

torch::jit::Module frozen_form_of(const torch::jit::Module& module) {
  // Without the optimiser a method is inlined one call deep, and the rest of it is dropped.
  const torch::jit::GraphOptimizerEnabledGuard optimizer(true);
  return torch::jit::freeze_module(module,
                                   {kLanguageModelMethods.begin(), kLanguageModelMethods.end()});
}

void rewind(std::istream& stream) {
  stream.clear();
  stream.seekg(0);
}

// glibc's malloc maps blocks of 128 KiB anew each time and gives the top of its heap back: a decode
// step on the CPU then spends a quarter of its time on page faults.
void keep_freed_memory() {
  constexpr int kLargestMmapThreshold = 32 * 1024 * 1024;  // that glibc takes
  constexpr int kTrimThreshold = 1024 * 1024 * 1024;
  mallopt(M_MMAP_THRESHOLD, kLargestMmapThreshold);
  mallopt(M_TRIM_THRESHOLD, kTrimThreshold);
}

}  // namespace

void configure_libtorch() {
  keep_freed_memory();
  static QuietWarnings quiet;
  c10::WarningUtils::set_warning_handler(&quiet);
  torch::jit::getProfilingMode() = false;
  torch::jit::getExecutorMode() = false;
  torch::jit::setTensorExprFuserEnabled(false);
  // The graph runs as it was traced: the optimiser would split a layer norm on CUDA into operators
  // that return float32 for float16. The switch belongs to the thread, and all runs are on this
  // one.
  torch::jit::setGraphExecutorOptimize(false);
}

torch::jit::Module load_module(const Bundle& bundle, c10::Device device, bool frozen) {
  const std::string file = bundle.model_file().string();
  std::ifstream stream = open_model_file(file);
  // The file stays open from the check to the load, so what was checked is what is loaded.
  check_zip_magic(stream, file);
  rewind(stream);
  check_sha256(stream, file, bundle.model_sha256);
  rewind(stream);
  return translating_errors(ExitCode::model, file, [&] {
    torch::jit::Module module = torch::jit::load(stream, c10::Device(c10::DeviceType::CPU));
    module.eval();
    module.to(device);
    return frozen ? frozen_form_of(module) : module;
  });
}

}  // namespace warpfuse::host
