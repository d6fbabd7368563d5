#include "facts.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/ir/constants.h>

#include "rules.h"

namespace warpfuse::rewriting {
namespace {

namespace jit = torch::jit;

constexpr int64_t kSmallestIndexBuffer = 2;

// A buffer that holds 0, 1, 2, .. or a lower triangle of ones has that as its element.
ExpressionPtr element_of_constant(const at::Tensor& tensor) {
  if (tensor.is_complex() || tensor.numel() == 0) {
    return nullptr;
  }
  if (tensor.numel() == 1) {
    return constant(tensor.to(at::kCPU).to(at::kDouble).item<double>());
  }
  const int64_t rank = tensor.dim();
  if (tensor.size(-1) < kSmallestIndexBuffer) {
    return nullptr;
  }
  const int64_t columns = tensor.size(-1);
  const bool is_square =
      rank >= 2 && tensor.size(-2) == columns && tensor.numel() == columns * columns;
  // The first two tell most weights apart.
  const at::Tensor start = tensor.reshape({-1}).slice(0, 0, 2).to(at::kCPU).to(at::kDouble);
  const auto first = start[0].item<double>(), second = start[1].item<double>();
  const auto holds = [&](const at::Tensor& expected) {
    return tensor.to(at::kCPU).to(at::kDouble).reshape(expected.sizes()).equal(expected);
  };
  if (tensor.numel() == columns && first == 0 && second == 1 &&
      holds(at::arange(columns, at::kDouble))) {
    return coordinate(rank - 1);
  }
  if (is_square && first == 1 && second == 0 &&
      holds(at::ones({columns, columns}, at::kDouble).tril())) {
    return compare(Expression::Kind::less_equal, coordinate(rank - 1), coordinate(rank - 2));
  }
  return nullptr;
}

// An element of which nothing else is known.
ExpressionPtr element_of(jit::Value* tensor, const Fact& fact) {
  if (!fact.sizes) {
    return nullptr;
  }
  const bool may_be_nan = !fact.dtype || !c10::isIntegralType(*fact.dtype, /*includeBool=*/true);
  return element(tensor, static_cast<int64_t>(fact.sizes->size()), may_be_nan);
}

Fact fact_of_constant(const at::Tensor& tensor) {
  Fact fact{
      .dtype = tensor.scalar_type(), .sizes = Sizes(), .element = element_of_constant(tensor)};
  for (const int64_t size : tensor.sizes()) {
    fact.sizes->push_back({0, size});
  }
  return fact;
}

}  // namespace

bool is_dense(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == c10::kStrided && !tensor.is_quantized();
}

Facts::Facts(const Attributes& attributes, jit::Graph& graph, const Writes& writes,
             const std::vector<RewriteArgument>& arguments)
    : attributes_(attributes), graph_(graph), writes_(writes) {
  for (size_t i = 0; i < arguments.size() && i + 1 < graph.inputs().size(); ++i) {
    set_argument(graph.inputs()[i + 1], arguments[i]);
  }
  visit(graph.block());
}

void Facts::set_argument(jit::Value* value, const RewriteArgument& argument) {
  Fact& fact = facts_[value];
  fact.dtype = argument.dtype;
  fact.sizes.emplace();
  for (const std::string& name : argument.sizes) {
    const bool is_number = name.find_first_not_of("0123456789") == std::string::npos;
    const auto [named, is_new] = named_sizes_.try_emplace(name);
    if (is_new) {
      named->second = is_number ? Integer{0, std::stoll(name)} : new_unknown();
    }
    fact.sizes->push_back(named->second);
  }
  complete(value, fact);
}

const Fact& Facts::of(const jit::Value* tensor) const {
  static const Fact nothing;
  const auto found = facts_.find(tensor);
  return found == facts_.end() ? nothing : found->second;
}

// NOLINTNEXTLINE(misc-no-recursion): it follows the owners.
std::optional<c10::IValue> Facts::held_value(const jit::Value* value) const {
  if (std::optional<c10::IValue> constant = jit::toIValue(value)) {
    return constant;
  }
  const jit::Node* node = value->node();
  if (node->kind() != jit::prim::GetAttr || attributes_.is_replaced(node->s(jit::attr::name))) {
    return std::nullopt;
  }
  const jit::Value* owner = node->input();
  if (owner == graph_.inputs().at(0)) {
    return attributes_.module().attr(node->s(jit::attr::name));
  }
  const std::optional<c10::IValue> object = held_value(owner);
  return object && object->isObject()
             ? std::optional(object->toObjectRef().getAttr(node->s(jit::attr::name)))
             : std::nullopt;
}

bool Facts::is_written(const jit::Value* value) const {
  const jit::Node* node = value->node();
  return writes_.reach(value) ||
         (node->kind() == jit::prim::GetAttr && attributes_.is_written(node->s(jit::attr::name)));
}

void Facts::complete(jit::Value* value, Fact& fact) const {
  const bool is_tensor = value->type()->isSubtypeOf(*c10::TensorType::get());
  if (!is_written(value)) {
    fact.element = fact.element || !is_tensor ? fact.element : element_of(value, fact);
  } else if (!is_tensor) {  // a list, which may hold other tensors then
    fact = {};
  } else {
    fact.element = nullptr;
    fact.sizes = writes_.may_resize() ? std::nullopt : fact.sizes;
  }
}

std::optional<c10::IValue> Facts::constant_value(const jit::Value* value) const {
  return is_written(value) ? std::nullopt : held_value(value);
}

// NOLINTNEXTLINE(misc-no-recursion): it follows the inputs.
std::optional<double> Facts::number(const jit::Value* value) const {
  const std::optional<c10::IValue> constant = constant_value(value);
  if (constant && constant->isScalar() && !constant->isComplexDouble()) {
    return constant->toScalar().toDouble();
  }
  const jit::Node* node = value->node();
  if (node->kind() == jit::aten::ScalarImplicit || node->kind() == jit::aten::Float) {
    return number(node->input(0));
  }
  const Fact& fact = of(value);
  if (fact.sizes && fact.sizes->empty() && fact.element &&
      fact.element->kind == Expression::Kind::constant) {
    return fact.element->number;
  }
  return std::nullopt;
}

jit::Value* Facts::argument(jit::Node* node, const char* name) {
  const c10::FunctionSchema* schema = node->maybeSchema();
  const std::optional<int> index =
      schema ? schema->argumentIndexWithName(name) : std::optional<int>();
  return index && *index < static_cast<int>(node->inputs().size()) ? node->input(*index) : nullptr;
}

std::optional<c10::IValue> Facts::constant_argument(jit::Node* node, const char* name) const {
  const jit::Value* value = argument(node, name);
  return value != nullptr ? constant_value(value) : std::nullopt;
}

bool Facts::is_none(jit::Node* node, const char* name) const {
  const std::optional<c10::IValue> value = constant_argument(node, name);
  return value && value->isNone();
}

void Facts::visit(jit::Block* block) {
  for (jit::Node* node : block->nodes()) {
    visit(node);
    for (jit::Block* inner : node->blocks()) {
      visit(inner);
    }
  }
}

void Facts::visit(jit::Node* node) {
  if (node->outputs().empty()) {
    return;
  }
  const jit::Value* output = node->output(0);
  Fact fact;
  if (node->kind() == jit::prim::Constant || node->kind() == jit::prim::GetAttr) {
    const std::optional<c10::IValue> value = held_value(output);
    if (!value || !value->isTensor() || !is_dense(value->toTensor())) {
      return;
    }
    fact = fact_of_constant(value->toTensor());
  } else if (node->kind() == jit::prim::NumToTensor) {
    fact.sizes.emplace();
    if (node->input()->type()->isSubtypeOf(*c10::IntType::get())) {
      fact.dtype = c10::kLong;
    }
    if (const std::optional<int64_t> known = integer(node->input()).known()) {
      fact.element = constant(static_cast<double>(*known));
    }
  } else {
    fact = fact_by_rule(*this, node);
  }
  for (jit::Value* each : node->outputs()) {
    Fact& kept = facts_[each] = fact;
    if (node->kind() == jit::prim::ListUnpack) {
      set_size_of_part(*this, node, each->offset(), kept);
    }
    complete(each, kept);
  }
}

}  // namespace warpfuse::rewriting
