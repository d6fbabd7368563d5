#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/load/graph_passes.h"
#include "runtime/load/plugin.h"

namespace warpfuse::host {
namespace {

namespace jit = torch::jit;

constexpr const char* kLinear = "mkldnn::_linear_pointwise";
constexpr const char* kReorder = "mkldnn::_reorder_linear_weight";

// A tensor that a graph reads: a constant, or an attribute of a part of the module.
struct Source {
  at::Tensor tensor;
  c10::intrusive_ptr<c10::ivalue::Object> owner;  // null for a constant
  std::string name;
};

// The value of a constant, of the module itself, or of an attribute of one of its parts.
std::optional<c10::IValue> value_of(const jit::Value* value, const jit::Module& module) {
  std::vector<std::string> path;  // from the last to the first
  for (; value->node()->kind() == c10::prim::GetAttr; value = value->node()->input()) {
    path.push_back(value->node()->s(c10::attr::name));
  }
  const bool is_module = value == value->node()->owningGraph()->inputs()[0];
  std::optional<c10::IValue> found = is_module ? module._ivalue() : jit::toIValue(value);
  for (auto name = path.rbegin(); found && name != path.rend(); ++name) {
    found = found->isObject() ? std::optional(found->toObjectRef().getAttr(*name)) : std::nullopt;
  }
  return found;
}

std::optional<Source> source_of(const jit::Value* value, const jit::Module& module) {
  const std::optional<c10::IValue> found = value_of(value, module);
  if (!found || !found->isTensor() || !found->toTensor().defined()) {
    return std::nullopt;
  }
  Source source{found->toTensor(), nullptr, ""};
  const jit::Node* node = value->node();
  if (node->kind() == c10::prim::GetAttr) {
    if (const std::optional<c10::IValue> owner = value_of(node->input(), module)) {
      source.owner = owner->toObject();
      source.name = node->s(c10::attr::name);
    }
  }
  return source;
}

// A matmul of the graph: input, weight and bias; the weight is [in, out] if `transposed`.
struct Matmul {
  jit::Value *input, *weight, *bias;
  bool transposed;
};

bool is_one(const jit::Value* value) {
  const std::optional<c10::IValue> constant = jit::toIValue(value);
  return constant && constant->isScalar() && constant->toScalar().equal(1);
}

std::optional<Matmul> matmul_of(jit::Node* node) {
  if (node->kind() == c10::aten::linear) {
    return Matmul{node->input(0), node->input(1), node->input(2), false};
  }
  if (node->kind() == c10::aten::addmm && is_one(node->input(3)) && is_one(node->input(4))) {
    jit::Node* const weight = node->input(2)->node();
    const bool turned = weight->kind() == c10::aten::t;
    return Matmul{node->input(1), turned ? weight->input() : node->input(2), node->input(0),
                  !turned};
  }
  return std::nullopt;
}

class Packer {
 public:
  explicit Packer(jit::Module& module) : module_(module) {}

  // Weights that the plugin's operators read stay as they are, and oneDNN reads them so too: a
  // packed copy beside them would double the memory, for the sake of prompts alone.
  void keep_plain(const jit::Graph& graph) {
    for (const jit::Node* node : graph.nodes()) {
      if (node->kind().is_aten() || node->kind().is_prim()) {
        continue;
      }
      for (const jit::Value* input : node->inputs()) {
        if (const std::optional<Source> source = source_of(input, module_)) {
          plain_.insert(source->tensor.unsafeGetTensorImpl());
        }
      }
    }
  }

  void change(jit::Graph& graph) {
    const std::vector<jit::Node*> nodes(graph.nodes().begin(), graph.nodes().end());
    for (jit::Node* node : nodes) {
      const std::optional<Matmul> matmul = matmul_of(node);
      const std::optional<Source> weight =
          matmul ? source_of(matmul->weight, module_) : std::nullopt;
      if (weight && is_packable(weight->tensor) && is_one_row(matmul->bias)) {
        replace(graph, node, *matmul, *weight);
      }
    }
    jit::EliminateDeadCode(graph.block());
    for (const jit::Node* node : graph.nodes()) {
      if (node->kind() == c10::prim::GetAttr) {
        if (const std::optional<Source> source = source_of(node->output(), module_)) {
          read_.insert(source->tensor.unsafeGetTensorImpl());
        }
      }
    }
  }

  // Frees packed weights that no changed graph reads any more.
  void free_unread() {
    for (const Source& source : packed_) {
      if (source.owner && !read_.contains(source.tensor.unsafeGetTensorImpl())) {
        source.owner->setAttr(source.name, at::empty({0}));
      }
    }
  }

 private:
  static bool is_packable(const at::Tensor& weight) {
    return weight.is_cpu() && weight.scalar_type() == at::kFloat && weight.dim() == 2 &&
           weight.numel() > 0 && !weight.is_mkldnn();
  }

  // Or no bias at all: oneDNN's linear takes no other. addmm adds whole matrices too.
  bool is_one_row(const jit::Value* bias) const {
    const std::optional<c10::IValue> found = value_of(bias, module_);
    return found && (found->isNone() || (found->isTensor() && found->toTensor().dim() == 1));
  }

  std::string packed_name(const Source& weight, bool transposed) {
    const auto key = std::pair(weight.tensor.unsafeGetTensorImpl(), transposed);
    const auto [place, is_new] = names_.try_emplace(key, "");
    if (is_new) {
      static const auto reorder =
          c10::Dispatcher::singleton()
              .findSchemaOrThrow(kReorder, "")
              .typed<at::Tensor(const at::Tensor&, std::optional<int64_t>)>();
      const at::Tensor plain = transposed ? weight.tensor.t().contiguous() : weight.tensor;
      place->second = fmt::format("packed_weight_{}", packed_.size());
      module_.register_attribute(place->second, c10::TensorType::get(),
                                 reorder.call(plain.detach(), /*batch_size=*/1));
      packed_.push_back(weight);
    }
    return place->second;
  }

  void replace(jit::Graph& graph, jit::Node* node, const Matmul& matmul, const Source& weight) {
    const jit::WithInsertPoint here(node);
    const bool is_plain =
        !matmul.transposed && plain_.contains(weight.tensor.unsafeGetTensorImpl());
    jit::Value* const packed =
        is_plain ? matmul.weight
                 : graph.insertGetAttr(graph.inputs()[0], packed_name(weight, matmul.transposed));
    jit::Value* const no_scalars =
        graph.insertNode(graph.createList(c10::OptionalType::create(c10::NumberType::get()), {}))
            ->output();
    jit::Value* const result =
        graph.insert(c10::Symbol::fromQualString(kLinear),
                     {matmul.input, packed, matmul.bias, graph.insertConstant("none"), no_scalars,
                      graph.insertConstant("")});
    node->output()->replaceAllUsesWith(result);
    node->destroy();
  }

  jit::Module& module_;
  std::map<std::pair<const void*, bool>, std::string> names_;
  std::vector<Source> packed_;
  std::set<const void*> read_, plain_;
};

bool has_onednn() {
  return at::hasMKLDNN() && at::globalContext().userEnabledMkldnn() && is_registered(kReorder) &&
         is_registered(kLinear);
}

}  // namespace

void pack_weights(jit::Module& module) {
  if (!has_onednn()) {
    return;
  }
  const c10::InferenceMode off(false);
  Packer packer(module);
  change_methods(module,
                 [&](const std::shared_ptr<jit::Graph>& graph) { packer.keep_plain(*graph); });
  change_methods(module, [&](const std::shared_ptr<jit::Graph>& graph) { packer.change(*graph); });
  packer.free_unread();
}

}  // namespace warpfuse::host
