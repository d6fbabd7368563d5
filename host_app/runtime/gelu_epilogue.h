#pragma once

#include <torch/csrc/jit/api/module.h>

namespace warpfuse::host {

// Joins GELU in its tanh form to the addmm before it: on a GPU cuBLASLt applies it to the products
// before they are rounded and written, which saves a kernel a layer. (On the CPU the joined
// operator is GELU's other form.) The methods forward, prefill and decode are inlined and changed
// in place, before any of them has run.
void fuse_gelu(torch::jit::Module& module);

}  // namespace warpfuse::host
