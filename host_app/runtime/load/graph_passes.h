#pragma once

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <functional>
#include <memory>

namespace warpfuse::host {

// Passes over the methods forward, prefill and decode of a language model. Each inlines the methods
// that there are and changes them in place, before any of them has run.

// Calls `change` on the graph of each method.
void change_methods(torch::jit::Module& module,
                    const std::function<void(std::shared_ptr<torch::jit::Graph>)>& change);

// A method that writes to its arguments in place writes to copies, except to the cache: the
// caller's token ids and positions stay as they are, at no cost for a model that writes to none.
void keep_arguments(torch::jit::Module& module);

// Replaces CPU float32 linear and addmm by oneDNN's with prepacked weights, and frees weights that
// are no longer read: on processors that MKL does not favour a decode step takes a third of the
// time. Weights that operators of the plugin read too are not packed. Does nothing if libtorch has
// no oneDNN.
void pack_weights(torch::jit::Module& module);

// Fuses into a layer's matmul what follows it, which saves a kernel each on a GPU:
//   GELU in its tanh form, which cuBLASLt applies before it rounds and writes (on the CPU the fused
//   operator is GELU's other form); the residual add, by warpfuse_host::linear_add
//   (cuda/linear_add.cpp), if libwarpfuse_host_cuda.so is loaded.
void fuse_epilogues(torch::jit::Module& module);

}  // namespace warpfuse::host
