#pragma once

#include <torch/csrc/jit/api/module.h>

namespace warpfuse::host {

// Turns the products of a model on the CPU with its float32 weights (linear, addmm) into oneDNN's
// with weights in the order that oneDNN reads them in: on processors that MKL does not favour a
// decode step takes a third of the time. The methods forward, prefill and decode are inlined and
// changed in place, before any of them has run, and weights that they use no more are freed. Does
// nothing where libtorch is without oneDNN.
void pack_weights(torch::jit::Module& module);

}  // namespace warpfuse::host
