#include "runtime/load/model.h"

#include <fmt/ranges.h>
#include <malloc.h>
#include <openssl/evp.h>
#include <sys/mman.h>
#include <torch/csrc/jit/passes/tensorexpr_fuser.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <memory>
#include <span>

#include "runtime/files.h"
#include "runtime/load/plugin.h"
#include "runtime/output.h"

namespace warpfuse::host {
namespace {

constexpr std::string_view kZipMagic = "PK\x03\x04";
constexpr size_t kChunk = size_t{1024} * 1024;

void check_zip_magic(std::istream& stream, const std::string& file) {
  std::array<char, kZipMagic.size()> start{};
  stream.read(start.data(), start.size());
  if (std::string_view(start.data(), static_cast<size_t>(stream.gcount())) != kZipMagic) {
    fail(ExitCode::model, "{}: not a TorchScript file (no zip archive)", file);
  }
}

void check_sha256(std::istream& stream, const std::string& file, const std::string& expected) {
  const std::string found = sha256_of(stream);
  if (found != expected) {
    fail(ExitCode::model, "{}: damaged or replaced: its SHA-256 is {}..., bundle.json says {}...",
         file, found.substr(0, 16), expected.substr(0, 16));
  }
}

void rewind(std::istream& stream) {
  stream.clear();
  stream.seekg(0);
}

void configure_torchscript() {
  torch::jit::getProfilingMode() = false;
  torch::jit::getExecutorMode() = false;
  torch::jit::setTensorExprFuserEnabled(false);
  // The graph runs as it was traced: the optimiser would split a layer norm on CUDA into operators
  // that return float32 for float16. The switch belongs to the thread.
  torch::jit::setGraphExecutorOptimize(false);
}

// glibc's malloc maps blocks of 128 KiB anew each time and gives the top of its heap back: a decode
// step on the CPU then spends a quarter of its time on page faults.
void keep_freed_memory() {
  constexpr int kLargestMmapThreshold = 32 * 1024 * 1024;  // that glibc takes
  constexpr int kTrimThreshold = 1024 * 1024 * 1024;
  mallopt(M_MMAP_THRESHOLD, kLargestMmapThreshold);
  mallopt(M_TRIM_THRESHOLD, kTrimThreshold);
}

// Prepares the process, and opens a file that begins as TorchScript files do.
std::ifstream open_archive(const std::string& file) {
  configure_torchscript();
  keep_freed_memory();
  std::ifstream stream = open_model_file(file);
  check_zip_magic(stream, file);
  rewind(stream);
  return stream;
}

torch::jit::Module load_stream(std::istream& stream, c10::Device device) {
  torch::jit::Module module = torch::jit::load(stream, c10::Device(c10::DeviceType::CPU));
  module.eval();
  module.to(device);
  return module;
}

// Throws Error(plugin) where libtorch's message says that an operator is unknown.
void require_known_operators(const std::string& message, const std::string& file) {
  static constexpr std::string_view kUnknown = "Unknown builtin op: ";
  if (const size_t at = message.find(kUnknown); at != std::string::npos) {
    const size_t start = at + kUnknown.size();
    require_operators({message.substr(start, message.find_first_of(". \n", start) - start)}, file);
  }
}

}  // namespace

std::string sha256_of(std::istream& stream) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> hash(EVP_MD_CTX_new(),
                                                                     EVP_MD_CTX_free);
  bool done = EVP_DigestInit_ex(hash.get(), EVP_sha256(), nullptr) == 1;
  std::vector<char> chunk(kChunk);
  while (done && (stream.read(chunk.data(), kChunk) || stream.gcount() > 0)) {
    done = EVP_DigestUpdate(hash.get(), chunk.data(), static_cast<size_t>(stream.gcount())) == 1;
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (!done || EVP_DigestFinal_ex(hash.get(), digest.data(), &size) != 1) {
    fail(ExitCode::check_failed, "OpenSSL computes no SHA-256");
  }
  return fmt::format("{:02x}", fmt::join(std::span(digest).first(size), ""));
}

torch::jit::Module load_module(const Bundle& bundle, c10::Device device) {
  const std::string file = bundle.model_file().string();
  // The file stays open from the check to the load, so what was checked is what is loaded.
  std::ifstream stream = open_archive(file);
  check_sha256(stream, file, bundle.model_sha256);
  rewind(stream);
  return translating_errors(ExitCode::model, file, [&] { return load_stream(stream, device); });
}

torch::jit::Module load_torchscript(const std::filesystem::path& path, c10::Device device) {
  const std::string file = path.string();
  std::ifstream stream = open_archive(file);
  return translating_errors(ExitCode::model, file, [&] {
    try {
      return load_stream(stream, device);
    } catch (const std::exception& error) {
      require_known_operators(error.what(), file);
      throw;
    }
  });
}

ModelPath find_model(const std::filesystem::path& path) {
  std::error_code ignored;
  const bool is_bundle = std::filesystem::is_directory(path, ignored) ||
                         (!std::filesystem::exists(path, ignored) && path.extension() != ".pt");
  return {path, is_bundle ? std::optional(read_bundle(path)) : std::nullopt};
}

std::vector<Bundle> bundles_of(const std::vector<ModelPath>& models) {
  std::vector<Bundle> bundles;
  for (const ModelPath& model : models) {
    if (model.bundle) {
      bundles.push_back(*model.bundle);
    }
  }
  return bundles;
}

torch::jit::Module load_module(const ModelPath& model, c10::Device device) {
  return model.bundle ? load_module(*model.bundle, device) : load_torchscript(model.path, device);
}

void use_huge_pages(const at::Tensor& tensor) {
  constexpr int kCollapse = 25;  // MADV_COLLAPSE, which glibc 2.36 does not know
  constexpr uintptr_t kHugePage = uintptr_t{2} * 1024 * 1024;
  auto* const data = static_cast<char*>(tensor.data_ptr());
  if (tensor.nbytes() < kHugePage) {
    return;
  }
  // One by one: a page that lies partly in no mapping, or that the kernel has no memory for, stays.
  for (char* page = data - reinterpret_cast<uintptr_t>(data) % kHugePage;
       page < data + tensor.nbytes(); page += kHugePage) {
    madvise(page, kHugePage, kCollapse);
  }
}

void settle_weights(const torch::jit::Module& module) {
  malloc_trim(0);
  for (const at::Tensor& parameter : module.parameters()) {
    if (parameter.is_cpu() && !parameter.is_mkldnn()) {
      use_huge_pages(parameter);
    }
  }
}

std::string summary_of(const RewriteReport& report) {
  const std::vector<RewrittenSoftmax> chains = report.grid_sample_chains();
  const int64_t routed_chains = std::ranges::count_if(chains, &RewrittenSoftmax::routed);
  const size_t softmaxes = report.softmaxes.size() - chains.size();
  std::string text;
  if (softmaxes > 0 || chains.empty()) {
    text = fmt::format("{} of {} softmax calls", report.routed() - routed_chains, softmaxes);
  }
  if (!chains.empty()) {
    text += fmt::format("{}{} of {} grid_sample chains", text.empty() ? "" : " and ", routed_chains,
                        chains.size());
  }
  text += " routed to the plugin";
  if (report.sdpa_calls > 0 && report.softmaxes.empty()) {
    text = fmt::format("0 of {}: exported with SDPA, nothing to gain", report.sdpa_calls);
  } else if (report.sdpa_calls > 0) {
    text += fmt::format(", {} of SDPA left as they are", report.sdpa_calls);
  }
  if (report.already_routed > 0) {
    text += fmt::format(", {} were there", report.already_routed);
  }
  if (report.retargeted_devices > 0) {
    text += fmt::format("; {} device literals replaced", report.retargeted_devices);
  }
  return text;
}

void rewrite_loaded(torch::jit::Module& module, const std::string& name, c10::Device device,
                    std::map<std::string, std::vector<RewriteArgument>> arguments) {
  RewriteOptions options;
  options.arguments = std::move(arguments);
  options.device = device;
  const RewriteReport report =
      translating_errors(ExitCode::model, name, [&] { return rewrite(module, options); });
  StatusLine().clear();  // of a command that shows one
  print_error("{}: {}\n", name, summary_of(report));
}

}  // namespace warpfuse::host
