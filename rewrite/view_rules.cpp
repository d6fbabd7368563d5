#include "view_rules.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <unordered_map>

#include "broadcast.h"
#include "reshape_rules.h"

namespace warpfuse::rewriting {
namespace {

namespace jit = torch::jit;

int64_t wrapped(int64_t dim, size_t rank) {
  return dim < 0 ? dim + static_cast<int64_t>(rank) : dim;
}

std::vector<Coordinate> identity(size_t rank) {
  std::vector<Coordinate> coordinates(rank);
  for (size_t i = 0; i < rank; ++i) {
    coordinates[i].dim = static_cast<int64_t>(i);
  }
  return coordinates;
}

Fact unknown_as(const Fact& x) {
  return {.dtype = x.dtype, .sizes = std::nullopt, .element = nullptr};
}

// `sizes` are those of x.
Fact reordered(const Fact& x, const Sizes& sizes, const std::vector<int64_t>& order) {
  Fact fact = unknown_as(x);
  fact.sizes.emplace();
  std::vector<Coordinate> coordinates(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    fact.sizes->push_back(sizes.at(order[i]));
    coordinates.at(order[i]).dim = static_cast<int64_t>(i);
  }
  fact.element = reindexed(x.element, coordinates);
  return fact;
}

Fact transpose(Facts& facts, jit::Node* node) {
  const Fact& x = facts.of(node->input(0));
  const bool is_t = node->inputs().size() == 1;
  const std::optional<int64_t> first = is_t ? 0 : facts.known_integer(node, "dim0");
  const std::optional<int64_t> second = is_t ? 1 : facts.known_integer(node, "dim1");
  if (!x.sizes || !first || !second || (is_t && x.sizes->size() != 2)) {
    return unknown_as(x);
  }
  std::vector<int64_t> order(x.sizes->size());
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = static_cast<int64_t>(i);
  }
  std::swap(order.at(wrapped(*first, order.size())), order.at(wrapped(*second, order.size())));
  return reordered(x, *x.sizes, order);
}

Fact permute(Facts& facts, jit::Node* node) {
  const Fact& x = facts.of(node->input(0));
  const std::optional<std::vector<Integer>> dims = facts.integers(node->input(1));
  if (!x.sizes || !dims || dims->size() != x.sizes->size()) {
    Fact fact = unknown_as(x);
    if (dims && !x.sizes) {
      fact.sizes.emplace();
      std::generate_n(std::back_inserter(*fact.sizes), dims->size(),
                      [&] { return facts.new_unknown(); });
    }
    return fact;
  }
  std::vector<int64_t> order;
  for (const Integer& dim : *dims) {
    if (!dim.known()) {
      return unknown_as(x);
    }
    order.push_back(wrapped(*dim.known(), dims->size()));
  }
  return reordered(x, *x.sizes, order);
}

Fact unsqueeze(Facts& facts, jit::Node* node) {
  const Fact& x = facts.of(node->input(0));
  const std::optional<int64_t> dim = facts.known_integer(node, "dim");
  if (!x.sizes || !dim) {
    return unknown_as(x);
  }
  Fact fact = x;
  const int64_t at = wrapped(*dim, x.sizes->size() + 1);
  fact.sizes->insert(fact.sizes->begin() + at, Integer{0, 1});
  std::vector<Coordinate> coordinates = identity(x.sizes->size());
  for (Coordinate& coordinate : coordinates) {
    coordinate.dim += coordinate.dim >= at ? 1 : 0;
  }
  fact.element = reindexed(x.element, coordinates);
  return fact;
}

Fact select_one(Facts& facts, jit::Node* node) {
  const Fact& x = facts.of(node->input(0));
  const std::optional<int64_t> dim = facts.known_integer(node, "dim");
  const std::optional<int64_t> index = facts.known_integer(node, "index");
  if (!x.sizes || !dim) {
    return unknown_as(x);
  }
  Fact fact = x;
  const int64_t at = wrapped(*dim, x.sizes->size());
  fact.sizes->erase(fact.sizes->begin() + at);
  std::vector<Coordinate> coordinates = identity(x.sizes->size());
  for (Coordinate& coordinate : coordinates) {
    coordinate.dim -= coordinate.dim > at ? 1 : 0;
  }
  coordinates[at] = {-1, index.value_or(0)};
  fact.element = index && *index >= 0 ? reindexed(x.element, coordinates) : nullptr;
  return fact;
}

Fact slice(Facts& facts, jit::Node* node) {
  constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
  const Fact& x = facts.of(node->input(0));
  const std::optional<int64_t> dim = facts.known_integer(node, "dim");
  const auto bound = [&](const char* name, int64_t otherwise) {
    return facts.is_none(node, name) ? Integer{0, otherwise}
                                     : facts.integer(Facts::argument(node, name));
  };
  if (!x.sizes || !dim || facts.known_integer(node, "step") != 1) {
    return unknown_as(x);
  }
  Fact fact = x;
  const int64_t at = wrapped(*dim, x.sizes->size());
  const Integer start = bound("start", 0), end = bound("end", kEnd);
  Integer& size = fact.sizes->at(at);
  if (!start.known() || *start.known() < 0) {
    size = facts.new_unknown();
    fact.element = nullptr;
    return fact;
  }
  if (!(end.is(kEnd) && start.is(0))) {
    const bool ends_inside = end.known() && *end.known() > 0 && *end.known() < kEnd;
    if (end.is(kEnd)) {
      size = size + -start.constant;
    } else if (end.known() && *end.known() < 0) {
      size = size + (end.constant - start.constant);
    } else if (end.unknown != 0 || (ends_inside && (end.is(1) || size.known()))) {
      // Up to a size that the caller chose, which is within the buffer.
      const int64_t limit = size.known() ? *size.known() : kEnd;
      size = end.known() ? Integer{0, std::min(*end.known(), limit) - start.constant}
                         : end + -start.constant;
    } else {
      size = facts.new_unknown();
    }
  }
  std::vector<Coordinate> coordinates = identity(x.sizes->size());
  coordinates[at] =
      fact.sizes->at(at).is(1) ? Coordinate{-1, start.constant} : Coordinate{at, start.constant};
  fact.element = reindexed(x.element, coordinates);
  return fact;
}

Fact expand(Facts& facts, jit::Node* node) {
  const Fact& x = facts.of(node->input(0));
  const bool as_other = Facts::argument(node, "other") != nullptr;
  std::optional<Sizes> sizes = as_other ? facts.of(Facts::argument(node, "other")).sizes
                                        : facts.integers(Facts::argument(node, "size"));
  if (sizes && !x.sizes) {
    Fact fact = unknown_as(x);
    fact.sizes = sizes;
    for (Integer& size : *fact.sizes) {
      size = size.is(-1) ? facts.new_unknown() : size;
    }
    return fact;
  }
  if (!sizes || sizes->size() < x.sizes->size()) {
    return unknown_as(x);
  }
  const size_t shift = sizes->size() - x.sizes->size();
  for (size_t i = shift; i < sizes->size(); ++i) {
    if ((*sizes)[i].is(-1)) {
      (*sizes)[i] = (*x.sizes)[i - shift];
    }
  }
  const auto coordinates = broadcast_coordinates(*x.sizes, *sizes);
  return {.dtype = x.dtype,
          .sizes = sizes,
          .element = coordinates ? reindexed(x.element, *coordinates) : nullptr};
}

// A list of parts as one fact: all have it.
Fact split(Facts& facts, jit::Node* node) {
  const Fact& x = facts.of(node->input(0));
  const std::optional<int64_t> dim = facts.known_integer(node, "dim");
  Fact fact = unknown_as(x);
  if (x.sizes && dim) {
    fact.sizes = x.sizes;
    jit::Value* part = Facts::argument(node, "split_size");
    fact.sizes->at(wrapped(*dim, x.sizes->size())) =
        part != nullptr && part->type()->isSubtypeOf(*c10::IntType::get()) ? facts.integer(part)
                                                                           : facts.new_unknown();
  }
  return fact;
}

Fact unbind(Facts& facts, jit::Node* node) {
  const Fact& x = facts.of(node->input(0));
  const std::optional<int64_t> dim = facts.known_integer(node, "dim");
  Fact fact = unknown_as(x);
  if (x.sizes && dim) {
    fact.sizes = x.sizes;
    fact.sizes->erase(fact.sizes->begin() + wrapped(*dim, x.sizes->size()));
  }
  return fact;
}

// Of a list whose elements all have its fact.
Fact unpacked(Facts& facts, jit::Node* node) { return facts.of(node->input(0)); }

// x[i, j, ..] with tensors of indices for the first dimensions.
Fact index(Facts& facts, jit::Node* node) {
  const Fact& x = facts.of(node->input(0));
  jit::Node* list = node->input(1)->node();
  // A tensor of unknown rank has as many dimensions as it is given indices for: a result with more
  // would not broadcast to scores.
  if (list->kind() != jit::prim::ListConstruct ||
      (x.sizes && list->inputs().size() > x.sizes->size())) {
    return unknown_as(x);
  }
  const std::vector<jit::Value*> indices(list->inputs().begin(), list->inputs().end());
  Fact fact = unknown_as(x);
  fact.sizes = broadcast_sizes(facts, indices);
  if (x.sizes && indices.size() < x.sizes->size()) {
    if (fact.sizes) {
      fact.sizes->insert(fact.sizes->end(), x.sizes->begin() + indices.size(), x.sizes->end());
    }
    return fact;
  }
  std::vector<Coordinate> coordinates;
  for (const ExpressionPtr& each : broadcast_elements(facts, indices, fact.sizes)) {
    if (each && each->kind == Expression::Kind::coordinate) {
      coordinates.push_back(each->coordinate);
    } else if (each && each->kind == Expression::Kind::constant && each->number >= 0) {
      coordinates.push_back({-1, static_cast<int64_t>(each->number)});
    } else {
      fact.element = is_uniform(x.element) ? x.element : nullptr;
      return fact;
    }
  }
  fact.element = reindexed(x.element, coordinates);
  return fact;
}

using Rule = Fact (*)(Facts&, jit::Node*);

const std::unordered_map<std::string, Rule> kRules{
    {"aten::transpose", transpose},    {"aten::t", transpose},       {"aten::permute", permute},
    {"aten::unsqueeze", unsqueeze},    {"aten::select", select_one}, {"aten::slice", slice},
    {"aten::expand", expand},          {"aten::expand_as", expand},  {"aten::split", split},
    {"aten::split_with_sizes", split}, {"aten::chunk", split},       {"aten::unbind", unbind},
    {"prim::ListUnpack", unpacked},    {"aten::index", index}};

}  // namespace

void set_size_of_part(Facts& facts, jit::Node* unpack, size_t part, Fact& fact) {
  jit::Node* list = unpack->input(0)->node();
  const char* name = list->kind() == jit::aten::split ? "split_size" : "split_sizes";
  const std::optional<std::vector<Integer>> parts = facts.integers(Facts::argument(list, name));
  const std::optional<int64_t> dim = facts.known_integer(list, "dim");
  if (parts && part < parts->size() && dim && fact.sizes) {
    fact.sizes->at(wrapped(*dim, fact.sizes->size())) = (*parts)[part];
  }
}

std::optional<Fact> fact_of_view(Facts& facts, jit::Node* node) {
  if (std::optional<Fact> fact = fact_of_reshape(facts, node)) {
    return fact;
  }
  const auto rule = kRules.find(node->kind().toQualString());
  return rule == kRules.end() ? std::nullopt : std::optional(rule->second(facts, node));
}

}  // namespace warpfuse::rewriting
