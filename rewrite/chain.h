#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <optional>
#include <string>
#include <vector>

#include "facts.h"
#include "logprob.h"
#include "mask.h"
#include "windows.h"
#include "writes.h"

namespace warpfuse::rewriting {

// A softmax and what was proved of the operators before it.
struct Chain {
  torch::jit::Node* softmax = nullptr;
  torch::jit::Value* input = nullptr;   // of the operator to emit
  torch::jit::Value* output = nullptr;  // that it replaces
  bool is_log = false;
  bool is_attention = false;           // scaled_masked_softmax, not softmax
  torch::jit::Node* linear = nullptr;  // linear_dropout_softmax: the one before
  std::optional<Logprob> logprob;      // fused_logprob
  double scale = 1;
  Mask mask;
  std::optional<Windows> windows;
  std::vector<std::string> form;  // operators, outermost last
  std::string note;
  bool is_left = false;  // to ATen; `note` says why
};

// Also cross_entropy_loss, which has one.
bool is_softmax(const torch::jit::Node* node);

Chain walk_up(torch::jit::Node* softmax, Facts& facts, const Writes& writes, bool keep_nan);

}  // namespace warpfuse::rewriting
