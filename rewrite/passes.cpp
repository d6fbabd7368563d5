#include "passes.h"

#include <torch/csrc/jit/ir/constants.h>

namespace warpfuse::rewriting {
namespace {

namespace jit = torch::jit;

bool is_false(const Facts& facts, const jit::Node* node, const char* name) {
  const jit::Value* value = Facts::argument(node, name);
  const std::optional<c10::IValue> constant =
      value != nullptr ? facts.constant_value(value) : std::nullopt;
  return constant && constant->isBool() && !constant->toBool();
}

bool is_no_op(const Facts& facts, const jit::Node* node) {
  if (node->kind() == jit::aten::dropout) {
    return is_false(facts, node, "train");
  }
  if (node->kind() != jit::aten::to || Facts::argument(node, "device") != nullptr ||
      !is_false(facts, node, "copy")) {
    return false;
  }
  const std::optional<c10::ScalarType>& before = facts.of(node->input(0)).dtype;
  const jit::Value* format = Facts::argument(node, "memory_format");
  return before && before == facts.of(node->output()).dtype && format != nullptr &&
         format->type()->isSubtypeOf(*c10::NoneType::get());
}

}  // namespace

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
