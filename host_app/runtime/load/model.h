#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/csrc/jit/api/module.h>

#include <istream>

#include "runtime/load/bundle.h"

namespace warpfuse::host {

// Checks model.pt against the SHA-256 of bundle.json, loads it and moves it to the device. The
// operators that it needs must be registered. Throws Error(model).
//
// The call also makes settings of libtorch and malloc for the rest of the process: no
// profiling executor and no fuser, so that a model runs as its file says, from the first call on;
// and freed memory stays mapped. What this thread runs from now on is not optimised either.
torch::jit::Module load_module(const Bundle& bundle, c10::Device device);

// The same of a TorchScript file that is in no bundle. An operator that no library has registered
// is an Error(plugin) that names it.
torch::jit::Module load_torchscript(const std::filesystem::path& file, c10::Device device);

// A model as a command line names it: the folder of a bundle, or a TorchScript file in none.
struct ModelPath {
  std::filesystem::path path;
  std::optional<Bundle> bundle;

  // The bundle, if it is that of a language model; else null.
  const Bundle* language_model() const {
    return bundle && bundle->language_model ? &*bundle : nullptr;
  }
};

// A path that is no folder is a TorchScript file, if it is there or ends in .pt. Throws
// Error(model) for a bundle that cannot be read.
ModelPath find_model(const std::filesystem::path& path);

std::vector<Bundle> bundles_of(const std::vector<ModelPath>& models);

torch::jit::Module load_module(const ModelPath& model, c10::Device device);

// In hexadecimal digits, of the rest of the stream.
std::string sha256_of(std::istream& stream);

// Moves a CPU tensor to pages of 2 MiB, where the kernel can (Linux 6.1): one core of an AMD EPYC
// reads 32 GB/s from them, and 20 from pages of 4 KiB. Neighbours in memory may move along.
void use_huge_pages(const at::Tensor& tensor);

// What a module on the CPU needs no more goes back to the system, and its weights to huge pages.
// Weights that oneDNN has packed stay where they are.
void settle_weights(const torch::jit::Module& module);

// "2 of 2 softmax calls routed to the plugin", and what else there is to say.
std::string summary_of(const RewriteReport& report);

// Rewrites a module that was just loaded, for this device, and says the summary on stderr. Other
// passes come after it. Throws Error(model).
void rewrite_loaded(torch::jit::Module& module, const std::string& name, c10::Device device,
                    std::map<std::string, std::vector<RewriteArgument>> arguments);

}  // namespace warpfuse::host
