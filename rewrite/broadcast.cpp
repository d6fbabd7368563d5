#include "broadcast.h"

#include "dtypes.h"

namespace warpfuse::rewriting {

namespace jit = torch::jit;

std::optional<std::vector<Coordinate>> broadcast_coordinates(const Sizes& from, const Sizes& to) {
  if (from.size() > to.size()) {
    return std::nullopt;
  }
  const size_t shift = to.size() - from.size();
  std::vector<Coordinate> coordinates(from.size());
  for (size_t i = 0; i < from.size(); ++i) {
    if (!from[i].is(1)) {
      if (from[i] != to[i + shift]) {
        return std::nullopt;
      }
      coordinates[i].dim = static_cast<int64_t>(i + shift);
    }
  }
  return coordinates;
}

Sizes broadcast(Facts& facts, const Sizes& a, const Sizes& b) {
  const Sizes &longer = a.size() >= b.size() ? a : b, &shorter = a.size() >= b.size() ? b : a;
  Sizes result = longer;
  const size_t shift = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    Integer& size = result[i + shift];
    const Integer& other = shorter[i];
    if (other.is(1) || other == size) {
      continue;
    }
    // A number above 1 is the result's size, or the operator raises an error.
    if (size.is(1) || (other.known() && !size.known())) {
      size = other;
    } else if (other.known() || !size.known()) {
      size = facts.new_unknown();
    }
  }
  return result;
}

std::optional<Sizes> broadcast_sizes(Facts& facts, const std::vector<jit::Value*>& operands) {
  Sizes result;
  for (jit::Value* operand : operands) {
    if (is_number(operand)) {
      continue;
    }
    const std::optional<Sizes>& sizes = facts.of(operand).sizes;
    if (!sizes) {
      return std::nullopt;
    }
    result = broadcast(facts, result, *sizes);
  }
  return result;
}

std::vector<ExpressionPtr> broadcast_elements(Facts& facts,
                                              const std::vector<jit::Value*>& operands,
                                              const std::optional<Sizes>& sizes) {
  std::vector<ExpressionPtr> elements;
  for (jit::Value* operand : operands) {
    const Fact& fact = facts.of(operand);
    if (const std::optional<double> number = facts.number(operand)) {
      elements.push_back(constant(*number));
    } else if (sizes && fact.sizes && is_uniform(fact.element)) {
      elements.push_back(fact.element);
    } else {
      const auto coordinates =
          sizes && fact.sizes ? broadcast_coordinates(*fact.sizes, *sizes) : std::nullopt;
      elements.push_back(coordinates ? reindexed(fact.element, *coordinates) : nullptr);
    }
  }
  return elements;
}

}  // namespace warpfuse::rewriting
