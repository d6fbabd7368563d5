#include <ATen/Functions.h>

#include "deform.h"

namespace warpfuse::rewriting {
namespace {

namespace jit = torch::jit;

constexpr int64_t kPointDim = 3;  // of levels, or of levels and points

jit::Value* unflattened(jit::Graph& graph, jit::Value* tensor, int64_t dim,
                        const std::vector<int64_t>& sizes) {
  return graph.insert(c10::Symbol::fromQualString("aten::unflatten"), {tensor, dim, sizes});
}

jit::Value* emitted_operand(jit::Graph& graph, const Operand& operand) {
  jit::Value* tensor = operand.tensor;
  for (const auto& [dim, size] : operand.checked_sizes) {
    tensor = unflattened(graph, tensor, dim, {size});
  }
  if (operand.has_merged_points) {
    const std::vector<Axis>& merged = operand.dims[kPointDim];
    tensor =
        unflattened(graph, tensor, kPointDim, {merged[0].size.constant, merged[1].size.constant});
  }
  return tensor;
}

// A buffer of the module, which it may have from another layer of the same levels.
jit::Value* buffer(jit::Module& module, jit::Graph& graph, const std::string& name,
                   const at::Tensor& value) {
  if (!module.hasattr(name)) {
    module.register_buffer(name, value);
  }
  return graph.insertGetAttr(graph.inputs()[0], name);
}

}  // namespace

const char* emitted_operator(const Deform& deform) {
  if (deform.is_left) {
    return "";
  }
  return deform.softmax != nullptr ? kDeformSoftmax : kDeform;
}

jit::Node* emit_deform(jit::Module& module, jit::Graph& graph, const Deform& deform,
                       c10::Device device) {
  std::vector<int64_t> sizes, starts;
  int64_t pixels = 0;
  std::string suffix;
  for (const auto& [height, width] : deform.levels) {
    sizes.insert(sizes.end(), {height, width});
    starts.push_back(pixels);
    pixels += height * width;
    suffix += "_" + std::to_string(height) + "x" + std::to_string(width);
  }
  const auto levels = static_cast<int64_t>(starts.size());
  const at::Tensor shapes = at::tensor(sizes, at::kLong).view({levels, 2});
  const jit::WithInsertPoint at_output(deform.output->node());
  jit::Value* result = graph.insert(
      c10::Symbol::fromQualString(emitted_operator(deform)),
      {emitted_operand(graph, deform.value),
       buffer(module, graph, "warpfuse_spatial_shapes" + suffix, shapes.to(device)),
       buffer(module, graph, "warpfuse_level_start_index" + suffix,
              at::tensor(starts, at::kLong).to(device)),
       emitted_operand(graph, deform.locations), emitted_operand(graph, deform.weights)});
  jit::Node* node = result->node();
  node->setSourceRange(deform.samplers[0]->sourceRange());
  node->setScope(deform.samplers[0]->scope());
  if (const auto callstack = deform.samplers[0]->callstack()) {
    node->setCallStack(*callstack);
  }
  deform.output->replaceAllUsesWith(result);
  return node;
}

}  // namespace warpfuse::rewriting
