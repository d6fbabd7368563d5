#pragma once

// Methods of a module that a pass has changed: what is in them, and what they give.

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <algorithm>
#include <string>

// As the host runs it: TorchScript's optimiser cannot take an addmm with a constant matrix.
inline at::Tensor run_method(const torch::jit::Module& module, const std::string& method,
                             const at::Tensor& input) {
  const torch::jit::GraphOptimizerEnabledGuard optimizer(false);
  return module.get_method(method)({input}).toTensor();
}

// Nodes of a kind.
inline int64_t count_nodes(const torch::jit::Module& module, const std::string& method,
                           const char* kind) {
  const auto nodes = module.get_method(method).graph()->nodes();
  return std::count_if(nodes.begin(), nodes.end(), [&](const torch::jit::Node* node) {
    return node->kind() == c10::Symbol::fromQualString(kind);
  });
}
