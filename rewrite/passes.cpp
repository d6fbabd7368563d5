#include "passes.h"

#include <torch/csrc/jit/ir/constants.h>

namespace warpfuse::rewriting {
namespace {

namespace jit = torch::jit;

bool is_false(const Facts& facts, jit::Node* node, const char* name) {
  const std::optional<c10::IValue> constant = facts.constant_argument(node, name);
  return constant && constant->isBool() && !constant->toBool();
}

bool is_no_op(const Facts& facts, jit::Node* node) {
  if (node->kind() == jit::aten::dropout) {
    return is_false(facts, node, "train");
  }
  if (!is_cast(facts, node) || !is_false(facts, node, "copy")) {
    return false;
  }
  const std::optional<c10::ScalarType>& before = facts.of(node->input(0)).dtype;
  return before && before == facts.of(node->output()).dtype && facts.is_none(node, "memory_format");
}

}  // namespace

bool is_cast(const Facts& facts, jit::Node* node) {
  const bool may_move =
      Facts::argument(node, "other") != nullptr ||
      (Facts::argument(node, "device") != nullptr && !facts.is_none(node, "device"));
  return node->kind() == jit::aten::to && !may_move;
}

void remove_no_ops(jit::Graph& graph, const Facts& facts) {
  for_each_node(graph.block(), [&](jit::Node* node) {
    if (is_no_op(facts, node)) {
      node->output()->replaceAllUsesWith(node->input(0));
      node->destroy();
    }
  });
}

int64_t retarget(jit::Graph& graph, c10::Device device) {
  int64_t replaced = 0;
  for_each_node(graph.block(), [&](jit::Node* node) {
    if (node->kind() != jit::prim::Constant) {
      return;
    }
    const std::optional<c10::IValue> value = jit::toIValue(node->output());
    if (!value || !value->isDevice() || value->toDevice() == device) {
      return;
    }
    const jit::WithInsertPoint before(node);
    node->output()->replaceAllUsesWith(graph.insertConstant(device));
    node->destroy();
    ++replaced;
  });
  return replaced;
}

}  // namespace warpfuse::rewriting
