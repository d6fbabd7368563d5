#pragma once

#include <c10/core/Device.h>
#include <torch/csrc/jit/ir/ir.h>

#include <memory>

#include "facts.h"

namespace warpfuse::rewriting {

// Calls `action` for each node of the block and of the blocks in it. It may destroy the node.
template <typename Action>
void for_each_node(torch::jit::Block* block, const Action& action) {
  for (auto it = block->nodes().begin(); it != block->nodes().end();) {
    torch::jit::Node* node = *it++;
    for (torch::jit::Block* inner : node->blocks()) {
      for_each_node(inner, action);
    }
    action(node);
  }
}

// Whether a node is a cast that leaves its input on the device. One to another tensor's dtype may
// move it to that one's device.
bool is_cast(const Facts& facts, torch::jit::Node* node);

// Removes casts to the dtype that a tensor has, and dropout that is off.
void remove_no_ops(torch::jit::Graph& graph, const Facts& facts);

// Replaces the graph's device literals by `device`, and says how many.
int64_t retarget(torch::jit::Graph& graph, c10::Device device);

}  // namespace warpfuse::rewriting
