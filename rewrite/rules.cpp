#include <ATen/Functions.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include "facts.h"
#include "layer_rules.h"
#include "view_rules.h"

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

// The dtype of a binary operator. A tensor without dimensions, or a number, changes it only to a
// higher category, such as that of floats.
std::optional<ScalarType> promoted(const Facts& facts, const jit::Node* node) {
  const auto is_number = [&](const jit::Value* value) {
    const Fact& fact = facts.of(value);
    return !value->type()->isSubtypeOf(*c10::TensorType::get()) ||
           (fact.sizes && fact.sizes->empty());
  };
  std::optional<ScalarType> result;
  for (const jit::Value* operand : {node->inputs()[0], node->inputs()[1]}) {
    if (is_number(operand)) {
      continue;
    }
    const std::optional<ScalarType>& dtype = facts.of(operand).dtype;
    if (!dtype || !facts.of(operand).sizes) {
      return std::nullopt;
    }
    result = result ? c10::promoteTypes(*result, *dtype) : *dtype;
  }
  // An integer tensor times a float is a float.
  return result && c10::isFloatingType(*result) ? result : std::nullopt;
}

Fact same_as_input(Facts& facts, jit::Node* node) { return facts.of(node->input(0)); }

// A function of each element.
Fact unary(Facts& facts, jit::Node* node) {
  Fact fact = facts.of(node->input(0));
  fact.element = nullptr;
  if (fact.dtype && !c10::isFloatingType(*fact.dtype)) {
    fact.dtype.reset();
  }
  return fact;
}

Fact arithmetic(Facts& facts, jit::Node* node) {
  return {.dtype = promoted(facts, node),
          .sizes = broadcast_sizes(facts, {node->input(0), node->input(1)}),
          .element = nullptr};
}

Fact addition(Facts& facts, jit::Node* node) {
  Fact fact = arithmetic(facts, node);
  const jit::Value* alpha = Facts::argument(node, "alpha");
  const std::optional<double> factor = alpha ? facts.number(alpha) : 1.0;
  const std::vector<ExpressionPtr> operands =
      broadcast_elements(facts, {node->input(0), node->input(1)}, fact.sizes);
  if (factor) {
    fact.element =
        sum(operands[0], operands[1], node->kind() == jit::aten::sub ? -*factor : *factor);
  }
  return fact;
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
    x[0] = element(node->output(), static_cast<int64_t>(fact.sizes->size()));
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

// Self keeps its sizes and dtype.
Fact written(Facts& facts, jit::Node* node) {
  const Fact& self = facts.of(node->input(0));
  return {.dtype = self.dtype, .sizes = self.sizes, .element = nullptr};
}

Fact smaller(Facts& facts, jit::Node* node) {
  return Facts::argument(node, "other") != nullptr ? arithmetic(facts, node) : Fact();
}

// Over the dimensions of a list, which stay with size 1 or go.
Fact reduction(Facts& facts, jit::Node* node) {
  const Fact& x = facts.of(node->input(0));
  const auto list = facts.integers(Facts::argument(node, "dim"));
  const std::optional<c10::IValue> keep = facts.constant_argument(node, "keepdim");
  Fact fact = unary(facts, node);
  fact.sizes.reset();
  if (!x.sizes || !list || list->empty() || !keep) {
    return fact;
  }
  Sizes sizes = *x.sizes;
  std::vector<bool> is_reduced(sizes.size());
  const auto rank = static_cast<int64_t>(sizes.size());
  for (const Integer& each : *list) {
    const std::optional<int64_t> dim = each.known();
    if (!dim) {
      return fact;
    }
    const int64_t at = *dim < 0 ? *dim + rank : *dim;
    sizes.at(at) = {0, 1};
    is_reduced.at(at) = true;
  }
  if (!keep->toBool()) {
    size_t at = 0;
    std::erase_if(sizes, [&](const Integer& /*unused*/) { return is_reduced[at++]; });
  }
  fact.sizes = std::move(sizes);
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

using Rule = Fact (*)(Facts&, jit::Node*);

const std::unordered_map<std::string, Rule>& rules() {
  static const auto* const table = [] {
    auto* rules = new std::unordered_map<std::string, Rule>{{"arange", arange},
                                                            {"where", where},
                                                            {"cumsum", cumulative_sum},
                                                            {"diff", difference},
                                                            {"masked_fill", masked_fill},
                                                            {"to", cast},
                                                            {"type_as", cast},
                                                            {"add", addition},
                                                            {"sub", addition},
                                                            {"rsub", arithmetic},
                                                            {"mul", arithmetic},
                                                            {"div", arithmetic},
                                                            {"minimum", arithmetic},
                                                            {"maximum", arithmetic},
                                                            {"mean", reduction},
                                                            {"sum", reduction}};
    const auto share = [&](Rule rule, std::initializer_list<const char*> names) {
      for (const char* name : names) {
        rules->emplace(name, rule);
      }
    };
    share(comparison, {"lt", "le", "gt", "ge", "eq", "ne"});
    share(logical, {"__and__", "__or__", "logical_and", "logical_or", "logical_not", "bitwise_and",
                    "bitwise_or", "bitwise_not"});
    share(filled, {"zeros", "ones", "full", "new_zeros", "new_ones", "new_full", "zeros_like",
                   "ones_like", "full_like"});
    share(same_as_input, {"contiguous", "clone", "detach", "alias", "feature_dropout"});
    share(written, {"add_", "sub_", "mul_", "div_", "scatter", "scatter_"});
    share(smaller, {"min", "max"});
    share(unary,
          {"dropout", "layer_norm", "batch_norm", "group_norm", "gelu",    "relu",       "tanh",
           "sigmoid", "silu",       "pow",        "neg",        "exp",     "log",        "abs",
           "floor",   "clamp",      "sqrt",       "rsqrt",      "softmax", "log_softmax"});
    return rules;
  }();
  return *table;
}

}  // namespace

Fact fact_by_rule(Facts& facts, jit::Node* node) {
  if (std::optional<Fact> view = fact_of_view(facts, node)) {
    return *std::move(view);
  }
  if (std::optional<Fact> layer = fact_of_layer(facts, node)) {
    return *std::move(layer);
  }
  if (!node->kind().is_aten()) {
    return {};
  }
  const auto rule = rules().find(node->kind().toUnqualString());
  return rule == rules().end() ? Fact() : rule->second(facts, node);
}

}  // namespace warpfuse::rewriting
