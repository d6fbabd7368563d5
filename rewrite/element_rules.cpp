#include "element_rules.h"

#include <ATen/Functions.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <unordered_map>

#include "broadcast.h"

namespace warpfuse::rewriting {
namespace {

namespace jit = torch::jit;
using c10::ScalarType;
using Kind = Expression::Kind;

std::optional<ScalarType> dtype_argument(const Facts& facts, jit::Node* node) {
  const std::optional<c10::IValue> dtype = facts.constant_argument(node, "dtype");
  return dtype && dtype->isInt() ? std::optional(static_cast<ScalarType>(dtype->toInt()))
                                 : std::nullopt;
}

Fact comparison(Facts& facts, jit::Node* node) {
  Fact fact{.dtype = ScalarType::Bool,
            .sizes = broadcast_sizes(facts, {node->input(0), node->input(1)}),
            .element = nullptr};
  const std::vector<ExpressionPtr> x =
      broadcast_elements(facts, {node->input(0), node->input(1)}, fact.sizes);
  switch (node->kind()) {
    case jit::aten::lt:
      fact.element = compare(Kind::less, x[0], x[1]);
      break;
    case jit::aten::gt:
      fact.element = compare(Kind::less, x[1], x[0]);
      break;
    case jit::aten::le:
      fact.element = compare(Kind::less_equal, x[0], x[1]);
      break;
    case jit::aten::ge:
      fact.element = compare(Kind::less_equal, x[1], x[0]);
      break;
    case jit::aten::eq:
      fact.element = compare(Kind::equal, x[0], x[1]);
      break;
    default:
      fact.element = negation(compare(Kind::equal, x[0], x[1]));
  }
  return fact;
}

bool is_boolean(const Facts& facts, const jit::Value* value) {
  return facts.of(value).dtype == ScalarType::Bool;
}

Fact logical(Facts& facts, jit::Node* node) {
  const std::string name = node->kind().toUnqualString();
  Fact fact;
  const bool are_boolean = std::ranges::all_of(
      node->inputs(), [&](const jit::Value* input) { return is_boolean(facts, input); });
  if (are_boolean || name.starts_with("logical_")) {
    fact.dtype = ScalarType::Bool;
  }
  if (!are_boolean) {
    fact.sizes = node->inputs().size() == 1
                     ? facts.of(node->input(0)).sizes
                     : broadcast_sizes(facts, {node->input(0), node->input(1)});
    return fact;
  }
  if (node->inputs().size() == 1) {
    fact.sizes = facts.of(node->input(0)).sizes;
    fact.element = negation(facts.of(node->input(0)).element);
    return fact;
  }
  fact.sizes = broadcast_sizes(facts, {node->input(0), node->input(1)});
  const std::vector<ExpressionPtr> x =
      broadcast_elements(facts, {node->input(0), node->input(1)}, fact.sizes);
  const bool is_and = name.find("and") != std::string::npos;
  fact.element = is_and ? both(x[0], x[1]) : either(x[0], x[1]);
  return fact;
}

Fact where(Facts& facts, jit::Node* node) {
  if (node->inputs().size() != 3) {
    return {};
  }
  const std::vector<jit::Value*> operands{node->input(0), node->input(1), node->input(2)};
  Fact fact{.dtype = std::nullopt, .sizes = broadcast_sizes(facts, operands), .element = nullptr};
  // A number or a tensor without dimensions does not decide.
  for (size_t i = 1; i < operands.size(); ++i) {
    const Fact& operand = facts.of(operands[i]);
    const bool has_dimensions = operand.sizes && !operand.sizes->empty();
    if (operand.dtype && (has_dimensions || !fact.dtype)) {
      fact.dtype = operand.dtype;
    }
  }
  std::vector<ExpressionPtr> x = broadcast_elements(facts, operands, fact.sizes);
  if (!x[0] && fact.sizes) {  // whatever the condition is: both results are known
    x[0] = element(node->output(), static_cast<int64_t>(fact.sizes->size()), false);
  }
  fact.element = select(x[0], x[1], x[2]);
  return fact;
}

Fact filled(Facts& facts, jit::Node* node) {
  const std::string name = node->kind().toUnqualString();
  Fact fact{.dtype = dtype_argument(facts, node), .sizes = std::nullopt, .element = nullptr};
  if (name.ends_with("_like")) {
    fact.sizes = facts.of(node->input(0)).sizes;
  } else {
    fact.sizes = facts.integers(Facts::argument(node, "size"));
  }
  if (name.starts_with("new_") || name.ends_with("_like")) {
    fact.dtype = fact.dtype ? fact.dtype : facts.of(node->input(0)).dtype;
  }
  if (name.find("ones") != std::string::npos || name.find("zeros") != std::string::npos) {
    fact.element = constant(name.find("ones") != std::string::npos);
  } else if (const std::optional<double> value =
                 facts.number(Facts::argument(node, "fill_value"))) {
    fact.element = constant(*value);
  }
  return fact;
}

Fact arange(Facts& facts, jit::Node* node) {
  jit::Value* end = Facts::argument(node, "end");
  const bool starts_at_0 =
      Facts::argument(node, "start") == nullptr || facts.known_integer(node, "start") == 0;
  if (end == nullptr || !starts_at_0 || Facts::argument(node, "step") != nullptr) {
    return {};
  }
  const std::optional<ScalarType> dtype = dtype_argument(facts, node);
  return {.dtype = dtype ? *dtype : ScalarType::Long,
          .sizes = Sizes{facts.integer(end)},
          .element = coordinate(0)};
}

// Numbers, or a choice of two, as the dtype holds them.
ExpressionPtr in_dtype(const ExpressionPtr& element, ScalarType dtype) {
  const auto rounded = [&](const ExpressionPtr& number) {
    const at::Tensor value = at::scalar_tensor(number->number, at::kDouble).to(dtype);
    return constant(value.to(at::kDouble).item<double>());
  };
  if (is_uniform(element)) {
    return rounded(element);
  }
  const bool is_choice =
      element && element->kind == Kind::select && is_uniform(element->a) && is_uniform(element->b);
  return is_choice ? select(element->condition, rounded(element->a), rounded(element->b)) : nullptr;
}

Fact cast(Facts& facts, jit::Node* node) {
  Fact fact = facts.of(node->input(0));
  const bool has_dtype = Facts::argument(node, "dtype") != nullptr;
  const bool has_other = Facts::argument(node, "other") != nullptr;
  const std::optional<ScalarType> before = fact.dtype;
  if (has_other) {
    fact.dtype = facts.of(Facts::argument(node, "other")).dtype;
  } else if (has_dtype && !facts.is_none(node, "dtype")) {
    fact.dtype = dtype_argument(facts, node);
  }
  if (before != fact.dtype) {
    fact.element = fact.dtype ? in_dtype(fact.element, *fact.dtype) : nullptr;
  }
  return fact;
}

Fact cumulative_sum(Facts& facts, jit::Node* node) {
  Fact fact{.dtype = std::nullopt, .sizes = facts.of(node->input(0)).sizes, .element = nullptr};
  if (is_constant(facts.of(node->input(0)).element, 0)) {
    fact.element = constant(0);
  }
  return fact;
}

// Neighbours' differences; `prepend` is one slice before the first.
Fact difference(Facts& facts, jit::Node* node) {
  const std::optional<int64_t> order = facts.known_integer(node, "n");
  const std::optional<int64_t> dim = facts.known_integer(node, "dim");
  const jit::Value* prepend = Facts::argument(node, "prepend");
  const Fact& x = facts.of(node->input(0));
  const Fact& before = facts.of(prepend);
  if (order != 1 || !dim || !x.sizes || !before.sizes || before.sizes->size() != x.sizes->size() ||
      !facts.is_none(node, "append")) {
    return {};
  }
  const auto rank = static_cast<int64_t>(x.sizes->size());
  const int64_t along = *dim < 0 ? *dim + rank : *dim;
  if (!(*before.sizes)[along].is(1)) {
    return {};
  }
  Fact fact{.dtype = x.dtype, .sizes = x.sizes, .element = nullptr};
  const bool counts =
      x.element && x.element->kind == Kind::coordinate && x.element->coordinate.dim == along;
  if (counts &&
      is_constant(before.element, static_cast<double>(x.element->coordinate.offset) - 1)) {
    fact.element = constant(1);
  }
  return fact;
}

Fact masked_fill(Facts& facts, jit::Node* node) {
  Fact fact{.dtype = facts.of(node->input(0)).dtype,
            .sizes = broadcast_sizes(facts, {node->input(0), node->input(1)}),
            .element = nullptr};
  const std::vector<ExpressionPtr> x =
      broadcast_elements(facts, {node->input(1), node->input(0)}, fact.sizes);
  if (const std::optional<double> fill = facts.number(node->input(2))) {
    fact.element = select(x[0], constant(*fill), x[1]);
  }
  return fact;
}

using ElementRule = Fact (*)(Facts&, jit::Node*);

const std::unordered_map<std::string, ElementRule>& element_rules() {
  static const auto* const table = [] {
    auto* rules = new std::unordered_map<std::string, ElementRule>{
        {"arange", arange},         {"where", where},     {"masked_fill", masked_fill},
        {"cumsum", cumulative_sum}, {"diff", difference}, {"to", cast},
        {"type_as", cast}};
    const auto share = [&](ElementRule rule, std::initializer_list<const char*> names) {
      for (const char* name : names) {
        rules->emplace(name, rule);
      }
    };
    share(comparison, {"lt", "le", "gt", "ge", "eq", "ne"});
    share(logical, {"__and__", "__or__", "logical_and", "logical_or", "logical_not", "bitwise_and",
                    "bitwise_or", "bitwise_not"});
    share(filled, {"zeros", "ones", "full", "new_zeros", "new_ones", "new_full", "zeros_like",
                   "ones_like", "full_like"});
    return rules;
  }();
  return *table;
}

}  // namespace

std::optional<Fact> fact_of_mask(Facts& facts, jit::Node* node) {
  if (!node->kind().is_aten()) {
    return std::nullopt;
  }
  const auto rule = element_rules().find(node->kind().toUnqualString());
  return rule == element_rules().end() ? std::nullopt : std::optional(rule->second(facts, node));
}

}  // namespace warpfuse::rewriting
