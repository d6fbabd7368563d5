#include <algorithm>
#include <string>

#include "broadcast.h"
#include "dtypes.h"
#include "rules.h"

namespace warpfuse::rewriting {
namespace {

namespace jit = torch::jit;
using c10::ScalarType;
using Kind = Expression::Kind;

Fact comparison(Facts& facts, jit::Node* node) {
  Fact fact{.dtype = ScalarType::Bool,
            .sizes = broadcast_sizes(facts, {node->input(0), node->input(1)}),
            .element = nullptr};
  std::vector<ExpressionPtr> x =
      broadcast_elements(facts, {node->input(0), node->input(1)}, fact.sizes);
  if (is_uniform(x[0]) && is_uniform(x[1])) {  // two numbers may be rounded to one
    const auto dtype = promoted(facts, {node->input(0), node->input(1)});
    x = {in_dtype(x[0], dtype), in_dtype(x[1], dtype)};
  }
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
  Fact fact{.dtype = promoted(facts, {operands[1], operands[2]}),
            .sizes = broadcast_sizes(facts, operands),
            .element = nullptr};
  std::vector<ExpressionPtr> x = broadcast_elements(facts, operands, fact.sizes);
  const bool are_numbers = is_number(operands[1]) && is_number(operands[2]);
  for (const size_t i : {1, 2}) {
    // Two numbers get the default dtype, and are rounded by the cast to the scores'.
    if (is_uniform(x[i]) && !are_numbers) {
      x[i] = in_dtype(x[i], fact.dtype);
    }
  }
  if (!x[0] && fact.sizes) {  // whatever the condition is: both results are known
    x[0] = element(node->output(), static_cast<int64_t>(fact.sizes->size()), false);
  }
  fact.element = select(x[0], x[1], x[2]);
  return fact;
}

Fact filled(Facts& facts, jit::Node* node) {
  const std::string name = node->kind().toUnqualString();
  const bool is_like_input = name.starts_with("new_") || name.ends_with("_like");
  Fact fact{.dtype = asked_dtype(facts, node,
                                 is_like_input ? facts.of(node->input(0)).dtype : std::nullopt),
            .sizes = std::nullopt,
            .element = nullptr};
  if (name.ends_with("_like")) {
    fact.sizes = facts.of(node->input(0)).sizes;
  } else {
    fact.sizes = facts.integers(Facts::argument(node, "size"));
  }
  if (name.find("ones") != std::string::npos || name.find("zeros") != std::string::npos) {
    fact.element = constant(name.find("ones") != std::string::npos);
  } else if (const std::optional<double> value =
                 facts.number(Facts::argument(node, "fill_value"))) {
    fact.element = fact.dtype ? in_dtype(constant(*value), fact.dtype) : constant(*value);
  }
  return fact;
}

// Whether a number is proved to be an integer.
bool is_integer(const Facts& facts, const jit::Value* number) {
  if (number->node()->kind() != jit::aten::ScalarImplicit) {
    return number->type()->isSubtypeOf(*c10::IntType::get());
  }
  const std::optional<ScalarType>& dtype = facts.of(number->node()->input(0)).dtype;
  return dtype && c10::isIntegralType(*dtype, /*includeBool=*/false);
}

Fact arange(Facts& facts, jit::Node* node) {
  jit::Value* end = Facts::argument(node, "end");
  const bool starts_at_0 =
      Facts::argument(node, "start") == nullptr || facts.known_integer(node, "start") == 0;
  if (end == nullptr || !starts_at_0 || Facts::argument(node, "step") != nullptr) {
    return {};
  }
  // Up to a float its dtype is the default one.
  const bool counts_integers = is_integer(facts, end);
  const std::optional<ScalarType> dtype =
      asked_dtype(facts, node, counts_integers ? std::optional(ScalarType::Long) : std::nullopt);
  return {.dtype = dtype,
          .sizes = Sizes{counts_integers ? facts.integer(end) : facts.new_unknown()},
          .element = holds_coordinates(dtype) ? coordinate(0) : nullptr};
}

Fact cast(Facts& facts, jit::Node* node) {
  Fact fact = facts.of(node->input(0));
  jit::Value* other = Facts::argument(node, "other");
  const std::optional<ScalarType> before = fact.dtype;
  fact.dtype = other != nullptr ? facts.of(other).dtype : asked_dtype(facts, node, before);
  // Two unknown dtypes may differ.
  if (!before || before != fact.dtype) {
    fact.element = in_dtype(fact.element, fact.dtype);
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
  const jit::Value* prepend = Facts::argument(node, "prepend");
  const Fact& x = facts.of(node->input(0));
  const Fact& before = facts.of(prepend);
  const std::optional<int64_t> along = dim_of(facts, node, x);
  if (order != 1 || !along || !x.sizes || !before.sizes ||
      before.sizes->size() != x.sizes->size() || !facts.is_none(node, "append")) {
    return {};
  }
  if (!(*before.sizes)[*along].is(1)) {
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

}  // namespace

const RuleTable kElementRules{{"aten::arange", arange},
                              {"aten::where", where},
                              {"aten::masked_fill", masked_fill},
                              {"aten::cumsum", cumulative_sum},
                              {"aten::diff", difference},
                              {"aten::to", cast},
                              {"aten::type_as", cast},
                              {"aten::lt", comparison},
                              {"aten::le", comparison},
                              {"aten::gt", comparison},
                              {"aten::ge", comparison},
                              {"aten::eq", comparison},
                              {"aten::ne", comparison},
                              {"aten::__and__", logical},
                              {"aten::__or__", logical},
                              {"aten::logical_and", logical},
                              {"aten::logical_or", logical},
                              {"aten::logical_not", logical},
                              {"aten::bitwise_and", logical},
                              {"aten::bitwise_or", logical},
                              {"aten::bitwise_not", logical},
                              {"aten::zeros", filled},
                              {"aten::ones", filled},
                              {"aten::full", filled},
                              {"aten::new_zeros", filled},
                              {"aten::new_ones", filled},
                              {"aten::new_full", filled},
                              {"aten::zeros_like", filled},
                              {"aten::ones_like", filled},
                              {"aten::full_like", filled}};

}  // namespace warpfuse::rewriting
