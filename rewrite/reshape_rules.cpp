#include <algorithm>
#include <utility>

#include "rules.h"

namespace warpfuse::rewriting {
namespace {

namespace jit = torch::jit;

// What is left of the elements of `whole` per element of `part`.
Integer quotient(Facts& facts, Sizes whole, const Sizes& part) {
  int64_t dividend = 1, divisor = 1;
  for (const Integer& size : part) {
    const auto same = std::ranges::find(whole, size);
    if (same != whole.end()) {
      whole.erase(same);
    } else if (size.known()) {
      divisor *= *size.known();
    } else {
      return facts.new_unknown();
    }
  }
  std::optional<Integer> unknown;
  for (const Integer& size : whole) {
    if (size.known()) {
      dividend *= *size.known();
    } else if (unknown) {
      return facts.new_unknown();
    } else {
      unknown = size;
    }
  }
  if (divisor == 0 || dividend % divisor != 0 || (unknown && dividend != divisor)) {
    return facts.new_unknown();
  }
  return unknown ? *unknown : Integer{0, dividend / divisor};
}

Fact view(Facts& facts, jit::Node* node) {
  const Fact& x = facts.of(node->input(0));
  Fact fact = unknown_as(x);
  fact.sizes = facts.integers(node->input(1));
  if (!fact.sizes) {
    return fact;
  }
  const auto open = std::ranges::find(*fact.sizes, Integer{0, -1});
  if (open != fact.sizes->end()) {
    *open = {0, 1};
    *open = x.sizes ? quotient(facts, *x.sizes, *fact.sizes) : facts.new_unknown();
  }
  if (x.sizes == fact.sizes || is_uniform(x.element)) {
    fact.element = x.element;
  }
  return fact;
}

Fact view_as(Facts& facts, jit::Node* node) {
  const Fact& x = facts.of(node->input(0));
  Fact fact{.dtype = x.dtype, .sizes = facts.of(node->input(1)).sizes, .element = nullptr};
  if (x.sizes == fact.sizes || is_uniform(x.element)) {
    fact.element = x.element;
  }
  return fact;
}

Fact flatten(Facts& facts, jit::Node* node) {
  const Fact& x = facts.of(node->input(0));
  Fact fact = unknown_as(x);
  const size_t rank = x.sizes ? x.sizes->size() : 0;
  const std::optional<int64_t> first = facts.dim(node, "start_dim", rank);
  const std::optional<int64_t> last = facts.dim(node, "end_dim", rank);
  if (!x.sizes || !first || !last || *last < *first) {
    return fact;
  }
  const auto begin = x.sizes->begin() + *first, end = x.sizes->begin() + *last + 1;
  Sizes sizes(x.sizes->begin(), begin);
  sizes.push_back(quotient(facts, Sizes(begin, end), {}));
  sizes.insert(sizes.end(), end, x.sizes->end());
  fact.sizes = std::move(sizes);
  if (*first == *last || is_uniform(x.element)) {
    fact.element = x.element;
  }
  return fact;
}

Fact unflatten(Facts& facts, jit::Node* node) {
  const Fact& x = facts.of(node->input(0));
  Fact fact = unknown_as(x);
  const std::optional<int64_t> at = facts.dim(node, "dim", x.sizes ? x.sizes->size() : 0);
  std::optional<std::vector<Integer>> parts = facts.integers(Facts::argument(node, "sizes"));
  if (!x.sizes || !at || !parts) {
    return fact;
  }
  Sizes sizes = *x.sizes;
  const auto open = std::ranges::find(*parts, Integer{0, -1});
  if (open != parts->end()) {
    *open = {0, 1};
    *open = quotient(facts, {sizes[*at]}, *parts);
  }
  sizes.erase(sizes.begin() + *at);
  sizes.insert(sizes.begin() + *at, parts->begin(), parts->end());
  fact.sizes = std::move(sizes);
  if (is_uniform(x.element)) {
    fact.element = x.element;
  }
  return fact;
}

// Tensors of a list, along a new dimension or one that they have.
Fact joined_tensors(Facts& facts, jit::Node* node) {
  const auto tensors = facts.elements(node->input(0));
  if (!tensors || tensors->empty()) {
    return {};
  }
  const bool is_stack = node->kind() == jit::aten::stack;
  const Fact& first = facts.of(tensors->front());
  Fact fact = first;
  fact.element = nullptr;
  const size_t rank = first.sizes ? first.sizes->size() + (is_stack ? 1 : 0) : 0;
  const std::optional<int64_t> at = facts.dim(node, "dim", rank);
  bool have_rank = true;
  for (const jit::Value* each : *tensors) {
    const Fact& part = facts.of(each);
    fact.dtype = part.dtype == fact.dtype ? fact.dtype : std::nullopt;
    have_rank = have_rank && part.sizes && part.sizes->size() == rank;
  }
  // cat skips a tensor [0], so that the others may have another rank.
  if (!first.sizes || !at || (!is_stack && rank == 1 && !have_rank)) {
    fact.sizes.reset();
    return fact;
  }
  Sizes sizes = *first.sizes;
  if (is_stack) {
    const Integer count{0, static_cast<int64_t>(tensors->size())};
    sizes.insert(sizes.begin() + *at, count);
  } else {
    std::optional<int64_t> total = 0;  // of sizes along `at`
    for (const jit::Value* each : *tensors) {
      const std::optional<Sizes>& part = facts.of(each).sizes;
      const bool is_known = total && part && part->size() == rank && (*part)[*at].known();
      total = is_known ? std::optional(*total + (*part)[*at].constant) : std::nullopt;
    }
    sizes[*at] = total ? Integer{0, *total} : facts.new_unknown();
  }
  fact.sizes = std::move(sizes);
  return fact;
}

}  // namespace

const RuleTable kReshapeRules{{"aten::view", view},
                              {"aten::reshape", view},
                              {"aten::view_as", view_as},
                              {"aten::reshape_as", view_as},
                              {"aten::flatten", flatten},
                              {"aten::unflatten", unflatten},
                              {"aten::stack", joined_tensors},
                              {"aten::cat", joined_tensors},
                              {"aten::concat", joined_tensors}};

}  // namespace warpfuse::rewriting
