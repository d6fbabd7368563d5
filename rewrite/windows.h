#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <optional>
#include <string>

#include "mask.h"

namespace warpfuse::rewriting {

// Scores [B * W, H, N, M] that are viewed as [B, W, H, N, M], get the mask of a window, and are
// viewed back. The operator takes them as [B, W * H, N, M].
struct Windows {
  torch::jit::Node* split = nullptr;
  torch::jit::Node* merge = nullptr;
  AppliedMask applied;  // to the result of `split`
};

// Those that end in `merged`, whose views are proved to change leading dimensions alone.
std::optional<Windows> windows_of(torch::jit::Value* merged, Facts& facts, bool keep_nan,
                                  std::string& note);

// Whether the operator takes the mask for each window: it is the same for each b.
bool is_same_in_batch(const Mask& mask, const Facts& facts);

// The scores and the mask (or null) as the operator takes them.
torch::jit::Value* by_windows(torch::jit::Graph& graph, const Windows& windows,
                              torch::jit::Value* scores, torch::jit::Value*& mask);

}  // namespace warpfuse::rewriting
