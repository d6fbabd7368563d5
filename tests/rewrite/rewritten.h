#pragma once

// A module and its rewritten copy: what became of its softmax calls, and what both give.

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <warpfuse/rewrite.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

struct Rewritten {
  torch::jit::Module original;
  torch::jit::Module module;
  warpfuse::RewriteReport report;

  explicit Rewritten(torch::jit::Module given, const warpfuse::RewriteOptions& options = {})
      : original(std::move(given)), module(original.deepcopy()) {
    original.eval();
    module.eval();
    report = warpfuse::rewrite(module, options);
  }

  const warpfuse::RewrittenSoftmax& only() const { return report.softmaxes.at(0); }
};

// Nothing where the call raises.
inline std::optional<at::Tensor> result_of(torch::jit::Module& module,
                                           const std::vector<c10::IValue>& arguments) {
  const torch::jit::GraphOptimizerEnabledGuard optimizer(false);
  try {
    return module.forward(arguments).toTensor();
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

// TorchScript source of forward(self, <arguments>).
inline torch::jit::Module module_of_source(const std::string& arguments, const std::string& body) {
  torch::jit::Module module("Model");
  module.register_attribute("training", c10::BoolType::get(), false);
  std::string source = "def forward(self, ";
  source.append(arguments).append("):\n").append(body).append("\n");
  module.define(source);
  return module;
}
