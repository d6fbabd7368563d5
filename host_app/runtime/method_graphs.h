#pragma once

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>

#include <vector>

namespace warpfuse::host {

// The methods of a language model that a module has, each one graph without calls, to be changed in
// place before any of them has run. Call forget_runs() of them then.
std::vector<torch::jit::GraphFunction*> inlined_methods(torch::jit::Module& module);

// Drops executable forms, which other methods that call these have had made.
void forget_runs(const std::vector<torch::jit::GraphFunction*>& methods);

}  // namespace warpfuse::host
