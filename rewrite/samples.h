#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <string>
#include <vector>

#include "facts.h"
#include "layout.h"

namespace warpfuse::rewriting {

// Samples of one or several levels, times weights, summed.
struct WeightedSamples {
  std::vector<torch::jit::Node*> samplers;  // grid_sampler, in the order that they are joined in
  torch::jit::Node* join = nullptr;         // stack or cat of several
  std::vector<Step> steps;                  // between that and the product
  torch::jit::Value* weights = nullptr;
  torch::jit::Node* product = nullptr;
  torch::jit::Node* sum = nullptr;
};

// What may be one multi-scale deformable attention: grid_sampler nodes, and what sums them up.
struct SampledSum {
  std::vector<torch::jit::Node*> samplers;  // in the graph's order
  std::vector<WeightedSamples> terms;       // empty: `note` says why
  torch::jit::Value* result = nullptr;
  std::string note;
};

// Each grid_sampler of the graph is in one.
std::vector<SampledSum> sampled_sums(torch::jit::Graph& graph, Facts& facts);

}  // namespace warpfuse::rewriting
