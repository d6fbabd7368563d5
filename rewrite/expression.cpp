#include "expression.h"

#include <cmath>
#include <utility>

namespace warpfuse::rewriting {
namespace {

using Kind = Expression::Kind;

constexpr int64_t kMaxParts = 256;
// The sum of a coordinate and an offset is a number that float32 holds.
constexpr double kMaxOffset = 1 << 20;

ExpressionPtr make(Expression expression) {
  for (const ExpressionPtr& part : {expression.a, expression.b, expression.condition}) {
    expression.parts += part ? part->parts : 0;
  }
  if (expression.parts > kMaxParts) {
    return nullptr;
  }
  return std::make_shared<const Expression>(std::move(expression));
}

// Coordinate `inner` of a tensor that is itself read at `outer`.
std::optional<Coordinate> composed(const Coordinate& inner, const std::vector<Coordinate>& outer) {
  if (inner.dim < 0) {
    return inner;
  }
  if (inner.dim >= static_cast<int64_t>(outer.size())) {
    return std::nullopt;
  }
  return Coordinate{outer[inner.dim].dim, outer[inner.dim].offset + inner.offset};
}

// NOLINTNEXTLINE(misc-no-recursion): it follows the tree.
bool are_same(const ExpressionPtr& x, const ExpressionPtr& y) {
  if (!x || !y || x == y) {
    return x == y;
  }
  return x->kind == y->kind && x->number == y->number && x->coordinate == y->coordinate &&
         x->tensor == y->tensor && x->at == y->at && are_same(x->a, y->a) && are_same(x->b, y->b) &&
         are_same(x->condition, y->condition);
}

// Whether the second condition holds exactly where the first does not.
bool are_opposite(const ExpressionPtr& x, const ExpressionPtr& y) {
  return (x->kind == Kind::negation && are_same(x->a, y)) ||
         (y->kind == Kind::negation && are_same(y->a, x));
}

bool is_condition(const ExpressionPtr& x) {
  return x->kind == Kind::less || x->kind == Kind::less_equal || x->kind == Kind::equal ||
         x->kind == Kind::both || x->kind == Kind::negation;
}

bool may_be_nan(const ExpressionPtr& x) {
  return x->kind == Kind::element    ? x->may_be_nan
         : x->kind == Kind::constant ? std::isnan(x->number)
                                     : x->kind != Kind::coordinate;
}

}  // namespace

bool is_uniform(const ExpressionPtr& expression) {
  return expression && expression->kind == Kind::constant;
}

ExpressionPtr constant(double number) { return make({.kind = Kind::constant, .number = number}); }

ExpressionPtr coordinate(int64_t dim, int64_t offset) {
  return make({.kind = Kind::coordinate, .coordinate = {dim, offset}});
}

std::vector<double> choices(const ExpressionPtr& expression) {
  if (is_uniform(expression)) {
    return {expression->number};
  }
  if (!expression || expression->kind != Kind::select) {
    return {};
  }
  std::vector<double> all = choices(expression->a);
  const std::vector<double> others = choices(expression->b);
  if (all.empty() || others.empty()) {
    return {};
  }
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

ExpressionPtr element(torch::jit::Value* tensor, int64_t rank, bool may_be_nan) {
  Expression expression{.kind = Kind::element, .tensor = tensor, .may_be_nan = may_be_nan};
  for (int64_t dim = 0; dim < rank; ++dim) {
    expression.at.push_back({dim, 0});
  }
  return make(std::move(expression));
}

bool is_constant(const ExpressionPtr& expression, double number) {
  return is_uniform(expression) && expression->number == number;
}

ExpressionPtr compare(Kind kind, const ExpressionPtr& a, const ExpressionPtr& b) {
  if (!a || !b) {
    return nullptr;
  }
  if (is_uniform(a) && is_uniform(b)) {
    return constant(kind == Kind::less         ? a->number < b->number
                    : kind == Kind::less_equal ? a->number <= b->number
                                               : a->number == b->number);
  }
  if (kind == Kind::equal && is_condition(a) && (is_constant(b, 0) || is_constant(b, 1))) {
    return is_constant(b, 0) ? negation(a) : a;
  }
  return make({.kind = kind, .a = a, .b = b});
}

ExpressionPtr both(const ExpressionPtr& a, const ExpressionPtr& b) {
  if (is_constant(a, 0) || is_constant(b, 0)) {
    return constant(0);
  }
  if (is_constant(a, 1) || is_constant(b, 1)) {
    return is_constant(a, 1) ? b : a;
  }
  return a && b ? make({.kind = Kind::both, .a = a, .b = b}) : nullptr;
}

ExpressionPtr either(const ExpressionPtr& a, const ExpressionPtr& b) {
  return negation(both(negation(a), negation(b)));
}

ExpressionPtr negation(const ExpressionPtr& a) {
  if (!a) {
    return nullptr;
  }
  switch (a->kind) {
    case Kind::constant:
      return constant(a->number == 0);
    case Kind::negation:
      return a->a;
    case Kind::less:
    case Kind::less_equal:
      if (!may_be_nan(a->a) && !may_be_nan(a->b)) {
        return make(
            {.kind = a->kind == Kind::less ? Kind::less_equal : Kind::less, .a = a->b, .b = a->a});
      }
      [[fallthrough]];
    default:
      return make({.kind = Kind::negation, .a = a});
  }
}

ExpressionPtr select(const ExpressionPtr& condition, const ExpressionPtr& a,
                     const ExpressionPtr& b) {
  if (is_uniform(condition)) {
    return condition->number != 0 ? a : b;
  }
  if (!condition || !a || !b) {
    return nullptr;
  }
  // Where one is chosen, its own choice by the same condition is known.
  if (a->kind == Kind::select && are_same(a->condition, condition)) {
    return select(condition, a->a, b);
  }
  if (b->kind == Kind::select && are_same(b->condition, condition)) {
    return select(condition, a, b->b);
  }
  if (b->kind == Kind::select && are_opposite(b->condition, condition)) {
    return select(condition, a, b->a);
  }
  return make({.kind = Kind::select, .a = a, .b = b, .condition = condition});
}

ExpressionPtr sum(const ExpressionPtr& a, const ExpressionPtr& b, double factor) {
  if (is_uniform(a) && is_uniform(b)) {
    return constant(a->number + factor * b->number);
  }
  if (a && a->kind == Kind::coordinate && is_uniform(b)) {
    const double offset = static_cast<double>(a->coordinate.offset) + factor * b->number;
    if (std::abs(offset) <= kMaxOffset && offset == std::round(offset)) {
      return coordinate(a->coordinate.dim, static_cast<int64_t>(offset));
    }
  }
  return nullptr;
}

ExpressionPtr reindexed(const ExpressionPtr& expression,
                        const std::vector<Coordinate>& coordinates) {
  if (!expression) {
    return nullptr;
  }
  const auto inner = [&](const ExpressionPtr& part) { return reindexed(part, coordinates); };
  switch (expression->kind) {
    case Kind::constant:
      return expression;
    case Kind::coordinate: {
      const std::optional<Coordinate> at = composed(expression->coordinate, coordinates);
      if (!at) {
        return nullptr;
      }
      return at->dim < 0 ? constant(static_cast<double>(at->offset))
                         : coordinate(at->dim, at->offset);
    }
    case Kind::element: {
      Expression result{.kind = Kind::element,
                        .tensor = expression->tensor,
                        .may_be_nan = expression->may_be_nan};
      for (const Coordinate& each : expression->at) {
        const std::optional<Coordinate> at = composed(each, coordinates);
        if (!at) {
          return nullptr;
        }
        result.at.push_back(*at);
      }
      return make(std::move(result));
    }
    case Kind::both:
      return both(inner(expression->a), inner(expression->b));
    case Kind::negation:
      return negation(inner(expression->a));
    case Kind::select:
      return select(inner(expression->condition), inner(expression->a), inner(expression->b));
    default:
      return compare(expression->kind, inner(expression->a), inner(expression->b));
  }
}

}  // namespace warpfuse::rewriting
