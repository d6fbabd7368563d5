#include "rules.h"

#include <cmath>
#include <utility>

#include "broadcast.h"
#include "dtypes.h"

namespace warpfuse::rewriting {
namespace {

namespace jit = torch::jit;

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
  if (node->output()->type()->kind() == c10::TypeKind::ListType) {  // + joins lists
    return {};
  }
  const std::vector<jit::Value*> operands{node->input(0), node->input(1)};
  Fact fact{.dtype = promoted(facts, operands),
            .sizes = broadcast_sizes(facts, operands),
            .element = nullptr};
  // A quotient of integers has the default dtype.
  if (node->kind() == jit::aten::div && fact.dtype && !c10::isFloatingType(*fact.dtype)) {
    fact.dtype.reset();
  }
  return fact;
}

// A root that is exact, such as that of 64 in attention's scale, whatever the default dtype is.
Fact power(Facts& facts, jit::Node* node) {
  if (!is_number(node->input(1))) {
    return arithmetic(facts, node);
  }
  Fact fact = unary(facts, node);
  const std::optional<double> base = facts.number(node->input(0));
  if (base && facts.number(node->input(1)) == 0.5) {  // NOLINT(*-magic-numbers)
    const double root = std::round(std::sqrt(*base));
    fact.element = root * root == *base ? constant(root) : nullptr;
  }
  return fact;
}

Fact addition(Facts& facts, jit::Node* node) {
  Fact fact = arithmetic(facts, node);
  const jit::Value* alpha = Facts::argument(node, "alpha");
  const std::optional<double> factor = alpha ? facts.number(alpha) : 1.0;
  const std::vector<ExpressionPtr> operands =
      broadcast_elements(facts, {node->input(0), node->input(1)}, fact.sizes);
  if (factor) {
    const ExpressionPtr total =
        sum(operands[0], operands[1], node->kind() == jit::aten::sub ? -*factor : *factor);
    const bool is_exact = is_uniform(total) ? !fact.dtype : holds_coordinates(fact.dtype);
    fact.element = is_exact ? total : in_dtype(total, fact.dtype);
  }
  return fact;
}

// Self keeps its sizes and dtype.
Fact written(Facts& facts, jit::Node* node) {
  const Fact& self = facts.of(node->input(0));
  return {.dtype = self.dtype, .sizes = self.sizes, .element = nullptr};
}

// Bounds that are tensors may have more dimensions.
Fact clamp(Facts& facts, jit::Node* node) {
  return node->schema().overload_name() == "Tensor" ? Fact() : unary(facts, node);
}

// In the dtype that it is asked for.
Fact in_asked_dtype(Facts& facts, jit::Node* node) {
  Fact fact = unary(facts, node);
  fact.dtype = asked_dtype(facts, node, fact.dtype);
  return fact;
}

Fact smaller(Facts& facts, jit::Node* node) {
  return Facts::argument(node, "other") != nullptr ? arithmetic(facts, node) : Fact();
}

// Over the dimensions of a list, which stay with size 1 or go.
Fact reduction(Facts& facts, jit::Node* node) {
  const Fact& x = facts.of(node->input(0));
  const auto list = facts.integers(Facts::argument(node, "dim"));
  const std::optional<c10::IValue> keep = facts.constant_argument(node, "keepdim");
  Fact fact = in_asked_dtype(facts, node);
  fact.sizes.reset();
  if (!x.sizes || !list || list->empty() || !keep) {
    return fact;
  }
  Sizes sizes = *x.sizes;
  std::vector<bool> is_reduced(sizes.size());
  for (const Integer& each : *list) {
    const std::optional<int64_t> at = from_front(each.known(), sizes.size());
    if (!at) {
      return fact;
    }
    sizes[*at] = {0, 1};
    is_reduced[*at] = true;
  }
  if (!keep->toBool()) {
    size_t at = 0;
    std::erase_if(sizes, [&](const Integer& /*unused*/) { return is_reduced[at++]; });
  }
  fact.sizes = std::move(sizes);
  return fact;
}

}  // namespace

const RuleTable kArithmeticRules{{"aten::pow", power},
                                 {"aten::add", addition},
                                 {"aten::sub", addition},
                                 {"aten::rsub", arithmetic},
                                 {"aten::mul", arithmetic},
                                 {"aten::div", arithmetic},
                                 {"aten::minimum", arithmetic},
                                 {"aten::maximum", arithmetic},
                                 {"aten::min", smaller},
                                 {"aten::max", smaller},
                                 {"aten::mean", reduction},
                                 {"aten::sum", reduction},
                                 {"aten::contiguous", same_as_input},
                                 {"aten::clone", same_as_input},
                                 {"aten::detach", same_as_input},
                                 {"aten::alias", same_as_input},
                                 {"aten::add_", written},
                                 {"aten::sub_", written},
                                 {"aten::mul_", written},
                                 {"aten::div_", written},
                                 {"aten::scatter", written},
                                 {"aten::scatter_", written},
                                 {"aten::softmax", in_asked_dtype},
                                 {"aten::log_softmax", in_asked_dtype},
                                 {"aten::clamp", clamp},
                                 {"aten::dropout", unary},
                                 {"aten::feature_dropout", unary},
                                 {"aten::layer_norm", unary},
                                 {"aten::batch_norm", unary},
                                 {"aten::group_norm", unary},
                                 {"aten::gelu", unary},
                                 {"aten::relu", unary},
                                 {"aten::tanh", unary},
                                 {"aten::sigmoid", unary},
                                 {"aten::silu", unary},
                                 {"aten::neg", unary},
                                 {"aten::exp", unary},
                                 {"aten::log", unary},
                                 {"aten::abs", unary},
                                 {"aten::floor", unary},
                                 {"aten::sqrt", unary},
                                 {"aten::rsqrt", unary}};

Fact unknown_as(const Fact& x) {
  return {.dtype = x.dtype, .sizes = std::nullopt, .element = nullptr};
}

std::optional<int64_t> dim_of(Facts& facts, jit::Node* node, const Fact& x) {
  return x.sizes ? facts.dim(node, "dim", x.sizes->size()) : std::nullopt;
}

Fact fact_by_rule(Facts& facts, jit::Node* node) {
  for (const RuleTable* table : {&kViewRules, &kPartRules, &kReshapeRules, &kElementRules,
                                 &kLayerRules, &kArithmeticRules}) {
    if (const auto rule = table->find(node->kind().toQualString()); rule != table->end()) {
      return rule->second(facts, node);
    }
  }
  return {};
}

}  // namespace warpfuse::rewriting
