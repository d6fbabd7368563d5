#pragma once

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "facts.h"
#include "operand.h"
#include "writes.h"

namespace warpfuse::rewriting {

// grid_sampler calls that are one multi-scale deformable attention, and what was proved of them.
struct Deform {
  std::vector<torch::jit::Node*> samplers;
  std::vector<std::pair<int64_t, int64_t>> levels;  // height and width
  Operand value, locations, weights;
  torch::jit::Node* softmax = nullptr;  // whose input is `weights`: ms_deform_attn_softmax
  torch::jit::Value* output = nullptr;  // that the operator replaces
  std::vector<std::string> form;
  std::string note;
  bool is_left = false;  // to ATen; `note` says why
};

// Each grid_sampler of the graph is in one.
std::vector<Deform> deformable_attentions(torch::jit::Graph& graph, Facts& facts,
                                          const Writes& writes);

inline constexpr const char* kDeform = "warpfuse::ms_deform_attn";
inline constexpr const char* kDeformSoftmax = "warpfuse::ms_deform_attn_softmax";

// Empty where it is left.
const char* emitted_operator(const Deform& deform);

// The operator in the place of `output`. The levels become buffers of the module, which is the
// graph's first argument.
torch::jit::Node* emit_deform(torch::jit::Module& module, torch::jit::Graph& graph,
                              const Deform& deform, c10::Device device);

}  // namespace warpfuse::rewriting
