#include "emit.h"

#include <vector>

#include "facts.h"

namespace warpfuse::rewriting {

namespace jit = torch::jit;

namespace {

// The tensors of a mask as one.
jit::Value* mask_tensor(jit::Graph& graph, const Mask& mask) {
  jit::Value* result = nullptr;
  for (const Mask::Tensor& tensor : mask.tensors) {
    jit::Value* value =
        tensor.is_hidden ? graph.insert(c10::aten::logical_not, {tensor.value}) : tensor.value;
    if (result == nullptr) {
      result = value;
    } else if (mask.kind == Mask::Kind::boolean) {
      result = graph.insert(c10::aten::logical_and, {result, value});
    } else {
      result = graph.insert(c10::aten::add, {result, value});
    }
  }
  return result;
}

// The arguments of scaled_masked_softmax.
std::vector<jit::Value*> attention_arguments(jit::Graph& graph, const Chain& chain) {
  const auto none = [&] { return graph.insertConstant(c10::IValue()); };
  const Mask& mask = chain.mask;
  jit::Value* scores = chain.input;
  jit::Value* attn_mask = mask_tensor(graph, mask);
  if (chain.windows) {
    scores = by_windows(graph, *chain.windows, scores, attn_mask);
  }
  if (attn_mask != nullptr && mask.may_broadcast) {
    const c10::ListTypePtr tensors = c10::ListType::ofTensors();
    jit::Node* list =
        graph.insertNode(graph.createList(tensors->getElementType(), {scores, attn_mask}));
    jit::Value* equal = graph.insert(c10::aten::broadcast_tensors, {list->output()});
    jit::Node* unpacked = graph.insertNode(graph.createListUnpack(equal, 2));
    scores = unpacked->output(0);
    attn_mask = unpacked->output(1);
  }
  return {scores,
          graph.insertConstant(chain.scale),
          attn_mask != nullptr ? attn_mask : none(),
          graph.insertConstant(mask.is_causal ? "upper_left" : "none"),
          mask.positions != nullptr ? mask.positions : none(),
          none(),
          graph.insertConstant(0),
          mask.fill ? graph.insertConstant(*mask.fill) : none()};
}

}  // namespace

const char* emitted_operator(const Chain& chain) {
  if (chain.is_left) {
    return "";
  }
  if (chain.logprob) {
    return kLogprob;
  }
  if (chain.is_log) {
    return kLogSoftmax;
  }
  if (chain.linear != nullptr) {
    return kLinear;
  }
  return chain.is_attention ? kAttention : kSoftmax;
}

void emit(jit::Graph& graph, const Chain& chain, Writes& writes) {
  if (chain.logprob) {
    writes.replace(chain.logprob->last->output(), emit_logprob(graph, *chain.logprob));
    return;
  }
  const jit::WithInsertPoint at_softmax(chain.softmax);
  std::vector<jit::Value*> arguments;
  if (chain.is_attention) {
    arguments = attention_arguments(graph, chain);
  } else if (chain.linear != nullptr) {
    arguments = chain.linear->inputs().vec();
    for (const c10::IValue& value : {c10::IValue(0.0), c10::IValue(false), c10::IValue(false)}) {
      arguments.push_back(graph.insertConstant(value));  // dropout_p and two options
    }
  } else {
    jit::Value* dtype = Facts::argument(chain.softmax, "dtype");
    const bool takes_dtype = dtype != nullptr && chain.output == chain.softmax->output();
    arguments = {chain.input, Facts::argument(chain.softmax, "dim"),
                 takes_dtype ? dtype : graph.insertConstant(c10::IValue())};
  }
  jit::Node* fused = graph.create(c10::Symbol::fromQualString(emitted_operator(chain)), arguments);
  fused->setSourceRange(chain.softmax->sourceRange());
  fused->setScope(chain.softmax->scope());
  graph.insertNode(fused);
  fused->output()->setType(c10::TensorType::get());
  jit::Value* result = fused->output();
  if (chain.windows) {
    const jit::Node* merge = chain.windows->merge;
    result = graph.insert(merge->kind(), {result, merge->input(1)});
  }
  writes.replace(chain.output, result);
}

}  // namespace warpfuse::rewriting
