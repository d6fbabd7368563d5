// The integers of a graph: sizes, what a trace computes from them, and dimensions.

#include "facts.h"

namespace warpfuse::rewriting {

namespace jit = torch::jit;

std::optional<int64_t> from_front(std::optional<int64_t> dim, size_t rank) {
  if (!dim) {
    return std::nullopt;
  }
  const int64_t at = *dim < 0 ? *dim + static_cast<int64_t>(rank) : *dim;
  return at >= 0 && at < static_cast<int64_t>(rank) ? std::optional(at) : std::nullopt;
}

std::optional<int64_t> Facts::known_integer(jit::Node* node, const char* name) {
  jit::Value* value = argument(node, name);
  return value ? integer(value).known() : std::nullopt;
}

std::optional<int64_t> Facts::dim(jit::Node* node, const char* name, size_t rank) {
  return from_front(known_integer(node, name), rank);
}

Integer Facts::size(jit::Value* tensor, int64_t dim) {
  if (const std::optional<Sizes>& sizes = of(tensor).sizes) {
    if (const std::optional<int64_t> at = from_front(dim, sizes->size())) {
      return (*sizes)[*at];
    }
  }
  if (writes_.may_resize() && writes_.reach(tensor)) {
    return new_unknown();  // another one after each write
  }
  const auto [found, is_new] = sizes_of_unknown_rank_.try_emplace({tensor, dim});
  if (is_new) {
    found->second = new_unknown();
  }
  return found->second;
}

Integer Facts::integer(jit::Value* value) {
  if (writes_.reach(value)) {
    return new_unknown();  // that of a tensor, another one after each write
  }
  if (const auto found = integers_.find(value); found != integers_.end()) {
    return found->second;
  }
  return integers_[value] = computed_integer(value);
}

// NOLINTNEXTLINE(misc-no-recursion): it follows the operands.
Integer Facts::computed_integer(jit::Value* value) {
  if (const std::optional<c10::IValue> constant = constant_value(value);
      constant && constant->isInt()) {
    return {0, constant->toInt()};
  }
  jit::Node* node = value->node();
  const auto operand = [&](size_t i) { return integer(node->input(i)); };
  switch (node->kind()) {
    case jit::aten::size:
      if (node->inputs().size() == 2) {
        if (const std::optional<int64_t> dim = known_integer(node, "dim")) {
          return size(argument(node, "self"), *dim);
        }
      }
      break;
    // Sizes as a trace has them: int -> 0-dimensional tensor -> int.
    case jit::prim::NumToTensor:
    case jit::aten::Int:
    case jit::aten::ScalarImplicit:
    case jit::aten::IntImplicit:
      return operand(0);
    case jit::aten::add:
    case jit::aten::sub: {
      const bool has_factor = node->inputs().size() == 3;
      if (has_factor && !operand(2).is(1)) {
        break;
      }
      const int64_t sign = node->kind() == jit::aten::add ? 1 : -1;
      const Integer a = operand(0), b = operand(1);
      if (b.unknown == 0) {
        return a + sign * b.constant;
      }
      if (sign > 0 && a.unknown == 0) {
        return b + a.constant;
      }
      if (sign < 0 && a.unknown == b.unknown) {
        return {0, a.constant - b.constant};
      }
      break;
    }
    case jit::aten::to:
      if (known_integer(node, "dtype") == static_cast<int64_t>(c10::kLong)) {
        return operand(0);
      }
      break;
    case jit::aten::mul:
      if (operand(0).known() && operand(1).known()) {
        return {0, operand(0).constant * operand(1).constant};
      }
      break;
    default:
      break;
  }
  return new_unknown();
}

std::optional<at::ArrayRef<jit::Value*>> Facts::elements(jit::Value* list) const {
  const bool is_made_here =
      list != nullptr && list->node()->kind() == jit::prim::ListConstruct && !writes_.reach(list);
  return is_made_here ? std::optional(list->node()->inputs()) : std::nullopt;
}

std::optional<std::vector<Integer>> Facts::integers(jit::Value* list) {
  if (list == nullptr) {
    return std::nullopt;
  }
  std::vector<Integer> result;
  if (const std::optional<c10::IValue> constant = constant_value(list)) {
    if (!constant->isIntList()) {
      return std::nullopt;
    }
    for (const int64_t value : constant->toIntVector()) {
      result.push_back({0, value});
    }
    return result;
  }
  const auto values = elements(list);
  if (!values) {
    return std::nullopt;
  }
  for (jit::Value* value : *values) {
    result.push_back(integer(value));
  }
  return result;
}

}  // namespace warpfuse::rewriting
