#include "attributes.h"

#include <torch/csrc/jit/passes/inliner.h>

#include <vector>

#include "passes.h"
#include "writes.h"

namespace warpfuse::rewriting {

namespace jit = torch::jit;

Attributes::Attributes(const jit::Module& module) : module_(module) {
  // A caller may reach the methods of inner modules too.
  for (const jit::Module& each : module.modules()) {
    for (const jit::Method& method : each.get_methods()) {
      const std::shared_ptr<jit::Graph> graph = method.graph()->copy();
      jit::Inline(*graph);
      collect(graph);
    }
  }
}

void Attributes::collect(const std::shared_ptr<jit::Graph>& graph) {
  std::vector<const jit::Value*> read;
  bool has_writes = false;
  for_each_node(graph->block(), [&](const jit::Node* node) {
    const c10::FunctionSchema* schema = node->maybeSchema();
    has_writes = has_writes || (schema != nullptr && schema->is_mutable());
    if (node->kind() == jit::prim::SetAttr) {
      replaced_.insert(node->s(jit::attr::name));
    } else if (node->kind() == jit::prim::GetAttr) {
      read.push_back(node->output());
    }
  });
  if (!has_writes) {  // the analysis behind Writes is slow
    return;
  }
  const Writes writes(graph);
  for (const jit::Value* attribute : read) {
    if (writes.reach(attribute)) {
      (writes.may_resize() ? replaced_ : written_).insert(attribute->node()->s(jit::attr::name));
    }
  }
}

}  // namespace warpfuse::rewriting
