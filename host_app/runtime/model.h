#pragma once

#include <c10/core/Device.h>
#include <torch/csrc/jit/api/module.h>

#include "runtime/bundle.h"

namespace warpfuse::host {

// Settings that every command wants, to be called once before the first model is loaded: no
// profiling executor and no fuser, so that what runs is what the file says, from the first call on;
// no warnings on stderr, which carries this program's own lines; and freed memory stays mapped.
void configure_libtorch();

// Checks model.pt against the SHA-256 of bundle.json, loads it and moves it to the device. The
// operators that it needs must be registered. Throws Error(model).
// `frozen`: TorchScript folds what is constant in its methods.
torch::jit::Module load_module(const Bundle& bundle, c10::Device device, bool frozen = false);

}  // namespace warpfuse::host
