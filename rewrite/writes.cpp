#include "writes.h"

#include <algorithm>
#include <string>

namespace warpfuse::rewriting {
namespace {

namespace jit = torch::jit;

// Beside those that write to an argument `out`.
const std::unordered_set<std::string> kResizing{"t_",       "transpose_", "swapaxes_", "swapdims_",
                                                "squeeze_", "unsqueeze_", "resize_",   "resize_as_",
                                                "set_",     "as_strided_"};

bool is_argument(const jit::Value* value) {
  return value->node()->kind() == jit::prim::Param &&
         value->node()->owningBlock()->owningNode() == nullptr;
}

bool is_attribute(const jit::Value* value) { return value->node()->kind() == jit::prim::GetAttr; }

}  // namespace

Writes::Writes(const std::shared_ptr<jit::Graph>& graph) : aliases_(graph) {
  collect(graph->block());
}

void Writes::collect(jit::Block* block) {
  for (jit::Node* node : block->nodes()) {
    if (const c10::FunctionSchema* schema = node->maybeSchema()) {
      for (size_t i = 0; i < schema->arguments().size() && i < node->inputs().size(); ++i) {
        if (const c10::AliasInfo* alias = schema->arguments()[i].alias_info();
            alias != nullptr && alias->isWrite()) {
          written_roots_.insert(root_of(node->input(i)));
          may_resize_ = may_resize_ || schema->arguments()[i].is_out() ||
                        kResizing.contains(node->kind().toUnqualString());
        }
      }
    }
    for (jit::Block* inner : node->blocks()) {
      collect(inner);
    }
  }
}

const jit::Value* Writes::root_of(const jit::Value* value) const {
  while (!is_argument(value) && !is_attribute(value) && !value->node()->inputs().empty()) {
    const jit::Node* node = value->node();
    const c10::FunctionSchema* schema = node->maybeSchema();
    const bool is_view = schema != nullptr && !schema->arguments().empty() &&
                         schema->arguments()[0].alias_info() != nullptr;
    if (!is_view) {
      break;
    }
    value = node->input(0);
  }
  return value;
}

bool Writes::reach(const jit::Value* value) const {
  if (!aliases_.hasWriters(value)) {
    return false;
  }
  const jit::Value* root = root_of(value);
  if (!is_argument(root) && !is_attribute(root)) {
    return true;
  }
  return std::ranges::any_of(written_roots_, [&](const jit::Value* written) {
    const bool are_distinct = (is_argument(written) && is_argument(root)) ||
                              (is_argument(written) && is_attribute(root)) ||
                              (is_attribute(written) && is_argument(root));
    return written == root || !are_distinct;  // two reads of one attribute are two values
  });
}

void Writes::replace(jit::Value* before, jit::Value* after) {
  aliases_.copyValue(before, after);
  before->replaceAllUsesWith(after);
}

}  // namespace warpfuse::rewriting
