#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace warpfuse::rewriting {

// An integer of the graph, such as a size: a constant, or an unknown plus a constant. Two unknowns
// are the same only if they have the same number.
struct Integer {
  int64_t unknown = 0;  // 0: none
  int64_t constant = 0;

  bool is(int64_t value) const { return unknown == 0 && constant == value; }
  std::optional<int64_t> known() const {
    return unknown == 0 ? std::optional(constant) : std::nullopt;
  }
  Integer operator+(int64_t value) const { return {unknown, constant + value}; }
  bool operator==(const Integer&) const = default;
};

// Where a tensor is read: coordinate `dim` of the result plus an offset, or the offset alone.
struct Coordinate {
  int64_t dim = -1;  // -1: none
  int64_t offset = 0;

  bool operator==(const Coordinate&) const = default;
};

struct Expression;
using ExpressionPtr = std::shared_ptr<const Expression>;

// The element of a tensor as a function of its coordinates, as far as the graph and the module's
// constants prove it: enough for masks made of arange, comparisons and constants.
struct Expression {
  enum class Kind {
    constant,    // number
    coordinate,  // the coordinate itself: arange
    element,     // an element of `tensor` at `at`
    less,        // a < b
    less_equal,  // a <= b
    equal,       // a == b
    both,        // a and b
    negation,    // not a
    select,      // condition ? a : b
  };
  Kind kind;
  double number = 0;
  Coordinate coordinate = {};
  torch::jit::Value* tensor = nullptr;
  bool may_be_nan = false;  // element
  std::vector<Coordinate> at = {};
  ExpressionPtr a = nullptr;
  ExpressionPtr b = nullptr;
  ExpressionPtr condition = nullptr;
  int64_t parts = 1;  // of the tree
};

ExpressionPtr constant(double number);
ExpressionPtr coordinate(int64_t dim, int64_t offset = 0);
ExpressionPtr element(torch::jit::Value* tensor, int64_t rank, bool may_be_nan);
// Null where an operand is, or where the tree gets large; simplified where the operands are
// constants.
ExpressionPtr compare(Expression::Kind kind, const ExpressionPtr& a, const ExpressionPtr& b);
ExpressionPtr both(const ExpressionPtr& a, const ExpressionPtr& b);
ExpressionPtr either(const ExpressionPtr& a, const ExpressionPtr& b);
ExpressionPtr negation(const ExpressionPtr& a);
ExpressionPtr select(const ExpressionPtr& condition, const ExpressionPtr& a,
                     const ExpressionPtr& b);
// The sum, where one operand is a constant.
ExpressionPtr sum(const ExpressionPtr& a, const ExpressionPtr& b, double factor);

// The expression with coordinate i replaced by coordinates[i]. Null where that cannot be said.
ExpressionPtr reindexed(const ExpressionPtr& expression,
                        const std::vector<Coordinate>& coordinates);

bool is_constant(const ExpressionPtr& expression, double number);
// The same number everywhere.
bool is_uniform(const ExpressionPtr& expression);
// The numbers of a choice of constants; empty for others.
std::vector<double> choices(const ExpressionPtr& expression);

}  // namespace warpfuse::rewriting
