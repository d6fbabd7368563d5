#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>

#include "broadcast.h"
#include "rules.h"

namespace warpfuse::rewriting {
namespace {

namespace jit = torch::jit;

std::vector<Coordinate> identity(size_t rank) {
  std::vector<Coordinate> coordinates(rank);
  for (size_t i = 0; i < rank; ++i) {
    coordinates[i].dim = static_cast<int64_t>(i);
  }
  return coordinates;
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
  const size_t rank = x.sizes ? x.sizes->size() : 0;
  const bool is_t = node->inputs().size() == 1;
  const std::optional<int64_t> first = is_t ? 0 : facts.dim(node, "dim0", rank);
  const std::optional<int64_t> second = is_t ? 1 : facts.dim(node, "dim1", rank);
  if (!x.sizes || !first || !second || (is_t && rank != 2)) {
    return unknown_as(x);
  }
  std::vector<int64_t> order(rank);
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[*first], order[*second]);
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
    const std::optional<int64_t> at = from_front(dim.known(), dims->size());
    if (!at) {
      return unknown_as(x);
    }
    order.push_back(*at);
  }
  return reordered(x, *x.sizes, order);
}

Fact unsqueeze(Facts& facts, jit::Node* node) {
  const Fact& x = facts.of(node->input(0));
  const std::optional<int64_t> at =
      x.sizes ? facts.dim(node, "dim", x.sizes->size() + 1) : std::nullopt;
  if (!at || !x.sizes) {
    return unknown_as(x);
  }
  Fact fact = x;
  fact.sizes->insert(fact.sizes->begin() + *at, Integer{0, 1});
  std::vector<Coordinate> coordinates = identity(x.sizes->size());
  for (Coordinate& coordinate : coordinates) {
    coordinate.dim += coordinate.dim >= *at ? 1 : 0;
  }
  fact.element = reindexed(x.element, coordinates);
  return fact;
}

Fact select_one(Facts& facts, jit::Node* node) {
  const Fact& x = facts.of(node->input(0));
  const std::optional<int64_t> at = dim_of(facts, node, x);
  const std::optional<int64_t> index = facts.known_integer(node, "index");
  if (!at || !x.sizes) {
    return unknown_as(x);
  }
  Fact fact = x;
  fact.sizes->erase(fact.sizes->begin() + *at);
  std::vector<Coordinate> coordinates = identity(x.sizes->size());
  for (Coordinate& coordinate : coordinates) {
    coordinate.dim -= coordinate.dim > *at ? 1 : 0;
  }
  coordinates[*at] = {-1, index.value_or(0)};
  fact.element = index && *index >= 0 ? reindexed(x.element, coordinates) : nullptr;
  return fact;
}

Fact slice(Facts& facts, jit::Node* node) {
  constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
  const Fact& x = facts.of(node->input(0));
  const std::optional<int64_t> at = dim_of(facts, node, x);
  const auto bound = [&](const char* name, int64_t otherwise) {
    return facts.is_none(node, name) ? Integer{0, otherwise}
                                     : facts.integer(Facts::argument(node, name));
  };
  if (!at || !x.sizes || facts.known_integer(node, "step") != 1) {
    return unknown_as(x);
  }
  Fact fact = x;
  const Integer start = bound("start", 0), end = bound("end", kEnd);
  Integer& size = (*fact.sizes)[*at];
  if (!start.known() || *start.known() < 0) {
    size = facts.new_unknown();
    fact.element = nullptr;
    return fact;
  }
  Integer last = facts.new_unknown();
  if (end.is(kEnd)) {
    last = size;
  } else if (end.known() && *end.known() < 0) {
    last = size + end.constant;
  } else if (end.known() && size.known()) {
    last = {0, std::min(end.constant, size.constant)};
  } else if (end.is(1) || size.is(1)) {
    last = {0, 1};
  } else if (size.known() || end == size) {
    last = end;  // the caller chose it within the buffer: another would not broadcast
  }
  size = last + -start.constant;
  size.constant = size.known() ? std::max<int64_t>(size.constant, 0) : size.constant;
  std::vector<Coordinate> coordinates = identity(x.sizes->size());
  coordinates[*at] = size.is(1) ? Coordinate{-1, start.constant} : Coordinate{*at, start.constant};
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

// Whether x[i] takes the elements at i: an index may also be None, or a mask.
bool is_index(const Facts& facts, const jit::Value* value) {
  const std::optional<c10::ScalarType>& dtype = facts.of(value).dtype;
  return dtype && *dtype != c10::kByte && c10::isIntegralType(*dtype, /*includeBool=*/false);
}

// x[i, j, ..] with tensors of indices for the first dimensions.
Fact index(Facts& facts, jit::Node* node) {
  const Fact& x = facts.of(node->input(0));
  const auto indices = facts.elements(node->input(1));
  // A mask of unknown rank has as many dimensions as it is given indices for: a result with more
  // would not broadcast to scores.
  const bool has_rank = x.sizes || x.dtype == c10::kBool;
  if (!indices || !has_rank || (x.sizes && indices->size() > x.sizes->size()) ||
      !std::ranges::all_of(*indices,
                           [&](const jit::Value* each) { return is_index(facts, each); })) {
    return unknown_as(x);
  }
  Fact fact = unknown_as(x);
  fact.sizes = broadcast_sizes(facts, indices->vec());
  if (x.sizes && indices->size() < x.sizes->size()) {
    if (fact.sizes) {
      const auto rest = x.sizes->begin() + static_cast<int64_t>(indices->size());
      fact.sizes->insert(fact.sizes->end(), rest, x.sizes->end());
    }
    return fact;
  }
  std::vector<Coordinate> coordinates;
  for (const ExpressionPtr& each : broadcast_elements(facts, indices->vec(), fact.sizes)) {
    // Below 0 they count from the end.
    if (each && each->kind == Expression::Kind::coordinate && each->coordinate.offset >= 0) {
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

}  // namespace

const RuleTable kViewRules{
    {"aten::transpose", transpose}, {"aten::t", transpose},       {"aten::permute", permute},
    {"aten::unsqueeze", unsqueeze}, {"aten::select", select_one}, {"aten::slice", slice},
    {"aten::expand", expand},       {"aten::expand_as", expand},  {"aten::index", index}};

}  // namespace warpfuse::rewriting
