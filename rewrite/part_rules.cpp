// Lists of parts of a tensor, and their parts.

#include "rules.h"

namespace warpfuse::rewriting {
namespace {

namespace jit = torch::jit;

// What chunk and split into equal parts give all parts but the last.
Integer size_of_parts(Facts& facts, jit::Node* node, const Integer& size) {
  if (node->kind() != jit::aten::chunk) {
    jit::Value* part = Facts::argument(node, "split_size");
    const bool is_number = part != nullptr && part->type()->isSubtypeOf(*c10::IntType::get());
    return is_number ? facts.integer(part) : facts.new_unknown();
  }
  const std::optional<int64_t> count = facts.known_integer(node, "chunks");
  const bool is_known = size.known() && count && *count > 0;
  return is_known ? Integer{0, (size.constant + *count - 1) / *count} : facts.new_unknown();
}

// A list of parts as one fact; the parts have other sizes where they are unpacked.
Fact split(Facts& facts, jit::Node* node) {
  const Fact& x = facts.of(node->input(0));
  Fact fact = unknown_as(x);
  if (const std::optional<int64_t> at = dim_of(facts, node, x); at && x.sizes) {
    fact.sizes = x.sizes;
    (*fact.sizes)[*at] = size_of_parts(facts, node, (*x.sizes)[*at]);
  }
  return fact;
}

Fact unbind(Facts& facts, jit::Node* node) {
  const Fact& x = facts.of(node->input(0));
  Fact fact = unknown_as(x);
  if (const std::optional<int64_t> at = dim_of(facts, node, x); at && x.sizes) {
    fact.sizes = x.sizes;
    fact.sizes->erase(fact.sizes->begin() + *at);
  }
  return fact;
}

// Of a list whose elements all have its fact.
Fact unpacked(Facts& facts, jit::Node* node) { return facts.of(node->input(0)); }

}  // namespace

const RuleTable kPartRules{{"aten::split", split},
                           {"aten::split_with_sizes", split},
                           {"aten::chunk", split},
                           {"aten::unbind", unbind},
                           {"prim::ListUnpack", unpacked}};

void set_size_of_part(Facts& facts, jit::Node* unpack, size_t part, Fact& fact) {
  jit::Node* node = unpack->input(0)->node();
  if (!fact.sizes || (node->kind() != jit::aten::split && node->kind() != jit::aten::chunk &&
                      node->kind() != jit::aten::split_with_sizes)) {
    return;
  }
  const Fact& x = facts.of(node->input(0));
  const std::optional<int64_t> at = dim_of(facts, node, x);
  if (!at || !x.sizes) {
    return;
  }
  const size_t count = unpack->outputs().size();
  Integer& size = (*fact.sizes)[*at];
  const char* name = node->kind() == jit::aten::split ? "split_size" : "split_sizes";
  if (const auto parts = facts.integers(Facts::argument(node, name))) {
    size = part < parts->size() ? (*parts)[part] : facts.new_unknown();
  } else if (part + 1 == count) {
    // The last one has what the others leave.
    const Integer& whole = (*x.sizes)[*at];
    const bool is_known = count == 1 || size.known();
    size =
        is_known ? whole + -static_cast<int64_t>(count - 1) * size.constant : facts.new_unknown();
  }
}

}  // namespace warpfuse::rewriting
