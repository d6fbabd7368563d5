#include <ATen/Functions.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_map>
#include <utility>

#include "broadcast.h"
#include "element_rules.h"
#include "facts.h"
#include "layer_rules.h"
#include "view_rules.h"

namespace warpfuse::rewriting {
namespace {

namespace jit = torch::jit;
using c10::ScalarType;
using Kind = Expression::Kind;

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

// A root that is exact, such as that of 64 in attention's scale, whatever the default dtype is.
Fact power(Facts& facts, jit::Node* node) {
  Fact fact = unary(facts, node);
  const std::optional<double> base = facts.number(node->input(0));
  if (base && facts.number(node->input(1)) == 0.5) {  // NOLINT(*-magic-numbers)
    const double root = std::round(std::sqrt(*base));
    fact.element = root * root == *base ? constant(root) : nullptr;
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

using Rule = Fact (*)(Facts&, jit::Node*);

const std::unordered_map<std::string, Rule>& rules() {
  static const auto* const table = [] {
    auto* rules = new std::unordered_map<std::string, Rule>{
        {"pow", power},      {"add", addition},   {"sub", addition},       {"rsub", arithmetic},
        {"mul", arithmetic}, {"div", arithmetic}, {"minimum", arithmetic}, {"maximum", arithmetic},
        {"mean", reduction}, {"sum", reduction}};
    const auto share = [&](Rule rule, std::initializer_list<const char*> names) {
      for (const char* name : names) {
        rules->emplace(name, rule);
      }
    };
    share(same_as_input, {"contiguous", "clone", "detach", "alias", "feature_dropout"});
    share(written, {"add_", "sub_", "mul_", "div_", "scatter", "scatter_"});
    share(smaller, {"min", "max"});
    share(unary, {"dropout", "layer_norm", "batch_norm", "group_norm", "gelu", "relu", "tanh",
                  "sigmoid", "silu", "neg", "exp", "log", "abs", "floor", "clamp", "sqrt", "rsqrt",
                  "softmax", "log_softmax"});
    return rules;
  }();
  return *table;
}

}  // namespace

Fact fact_by_rule(Facts& facts, jit::Node* node) {
  if (std::optional<Fact> view = fact_of_view(facts, node)) {
    return *std::move(view);
  }
  if (std::optional<Fact> mask = fact_of_mask(facts, node)) {
    return *std::move(mask);
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
