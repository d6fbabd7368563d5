#pragma once

#include <torch/csrc/jit/api/module.h>

namespace warpfuse::host {

// Joins what follows a layer's product to it, which saves a kernel each on a GPU:
//   GELU in its tanh form, which cuBLASLt applies before it rounds and writes; on the CPU the
//   joined operator is GELU's other form; the residual connection, by warpfuse_host::linear_add
//   (cuda/linear_add.cpp), where libwarpfuse_host_cuda.so was opened.
// The methods forward, prefill and decode are inlined and changed in place, before any of them has
// run.
void join_epilogues(torch::jit::Module& module);

}  // namespace warpfuse::host
