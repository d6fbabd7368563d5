#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <limits>
#include <string>
#include <unordered_map>

#include "layout.h"
#include "regroup.h"

namespace warpfuse::rewriting {
namespace {

namespace jit = torch::jit;
using Dims = std::vector<std::vector<Axis>>;

struct Application {
  const Step& step;
  Layout& layout;
  Facts& facts;
  Equalities& sizes;

  jit::Node* node() const { return step.node; }
  int64_t rank() const { return static_cast<int64_t>(layout.dims.size()); }
  // A dimension that an argument names, counted from the front.
  std::optional<int64_t> dim(const char* name) const {
    return facts.dim(node(), name, layout.dims.size());
  }
};

bool keep(const Application& /*unused*/) { return true; }

bool swap_dims(const Application& a) {
  const std::optional<int64_t> first = a.dim("dim0"), second = a.dim("dim1");
  if (!first || !second) {
    return false;
  }
  std::swap(a.layout.dims[*first], a.layout.dims[*second]);
  return true;
}

bool permute_dims(const Application& a) {
  const std::optional<std::vector<Integer>> order =
      a.facts.integers(Facts::argument(a.node(), "dims"));
  if (!order || order->size() != a.layout.dims.size()) {
    return false;
  }
  Dims dims;
  for (const Integer& each : *order) {
    const std::optional<int64_t> at = from_front(each.known(), order->size());
    if (!at) {
      return false;
    }
    dims.push_back(a.layout.dims[*at]);
  }
  a.layout.dims = std::move(dims);
  return true;
}

bool insert_dim(const Application& a) {
  const std::optional<int64_t> at = a.facts.dim(a.node(), "dim", a.layout.dims.size() + 1);
  if (at) {
    a.layout.dims.insert(a.layout.dims.begin() + *at, std::vector<Axis>());
  }
  return at.has_value();
}

bool remove_dim(const Application& a) {
  const std::optional<int64_t> at = a.dim("dim");
  if (!at || !a.layout.dims[*at].empty()) {
    return false;
  }
  a.layout.dims.erase(a.layout.dims.begin() + *at);
  return true;
}

bool has_axes(const std::vector<Axis>& dim, std::initializer_list<Role> roles) {
  return std::ranges::equal(dim, roles, {}, &Axis::role);
}

// One level of the dimension `at`, which goes.
bool take_level(const Application& a, int64_t at, int64_t level) {
  std::vector<Axis>& dim = a.layout.dims[at];
  if (dim.empty() && level == 0 && !a.layout.level) {  // the only one
    a.layout.level = 0;
  } else if (has_axes(dim, {Role::level}) && level >= 0 && dim[0].size.known() &&
             level < dim[0].size.constant) {
    a.layout.level = level;
  } else {
    return false;
  }
  a.layout.dims.erase(a.layout.dims.begin() + at);
  return true;
}

bool select_level(const Application& a) {
  const std::optional<int64_t> at = a.dim("dim");
  const std::optional<int64_t> index = a.facts.known_integer(a.node(), "index");
  return at && index && take_level(a, *at, *index);
}

bool unbind_level(const Application& a) {
  const std::optional<int64_t> at = a.dim("dim");
  return at && take_level(a, *at, a.step.part);
}

// A part of pixels, or the points of one level.
bool split_dim(const Application& a) {
  const std::optional<int64_t> at = a.dim("dim");
  jit::Value* argument = Facts::argument(a.node(), "split_sizes");
  argument = argument != nullptr ? argument : Facts::argument(a.node(), "split_size");
  const std::optional<std::vector<Integer>> parts = a.facts.integers(argument);
  if (!at || !parts || a.step.part >= static_cast<int64_t>(parts->size())) {
    return false;
  }
  int64_t start = 0, total = 0;
  for (size_t i = 0; i < parts->size(); ++i) {
    if (!(*parts)[i].known()) {
      return false;
    }
    start += static_cast<int64_t>(i) < a.step.part ? (*parts)[i].constant : 0;
    total += (*parts)[i].constant;
  }
  const int64_t length = (*parts)[a.step.part].constant;
  std::vector<Axis>& dim = a.layout.dims[*at];
  if (!a.sizes.equate(product_of_axes(dim, a.sizes), Product{total, {}})) {
    return false;
  }
  if (has_axes(dim, {Role::pixel}) && !a.layout.pixels) {
    a.layout.first_pixel = start;
    a.layout.pixels = length;
    dim[0].size = {0, length};
    if (length == 1) {
      dim.clear();
    }
    return true;
  }
  if (has_axes(dim, {Role::level, Role::point}) && dim[1].size.is(length) && start % length == 0) {
    a.layout.level = start / length;
    dim.erase(dim.begin());
    return true;
  }
  if (has_axes(dim, {Role::level}) && length == 1) {
    a.layout.level = start;
    dim.clear();
    return true;
  }
  return false;
}

bool slice_all(const Application& a) {
  const auto is_default = [&](const char* name, int64_t value) {
    return a.facts.is_none(a.node(), name) || a.facts.known_integer(a.node(), name) == value;
  };
  return is_default("start", 0) && is_default("end", std::numeric_limits<int64_t>::max()) &&
         is_default("step", 1);
}

bool flatten_dims(const Application& a) {
  const std::optional<int64_t> first = a.dim("start_dim"), last = a.dim("end_dim");
  if (!first || !last || *last < *first) {
    return false;
  }
  Dims& dims = a.layout.dims;
  for (int64_t i = *first + 1; i <= *last; ++i) {
    dims[*first].insert(dims[*first].end(), dims[i].begin(), dims[i].end());
  }
  dims.erase(dims.begin() + *first + 1, dims.begin() + *last + 1);
  return true;
}

bool regroup_dims(const Application& a, int64_t first, int64_t count,
                  const std::vector<std::optional<Product>>& targets) {
  Dims& dims = a.layout.dims;
  std::vector<Axis> axes;
  for (int64_t i = first; i < first + count; ++i) {
    axes.insert(axes.end(), dims[i].begin(), dims[i].end());
  }
  const std::optional<Dims> groups = regrouped(std::move(axes), targets, a.sizes);
  if (!groups) {
    return false;
  }
  dims.erase(dims.begin() + first, dims.begin() + first + count);
  dims.insert(dims.begin() + first, groups->begin(), groups->end());
  return true;
}

bool view_dims(const Application& a) {
  const auto targets = products_of(a.node()->input(1), a.facts);
  return targets && regroup_dims(a, 0, a.rank(), *targets);
}

bool view_as_other(const Application& a) {
  const std::optional<Sizes>& sizes = a.facts.of(a.node()->input(1)).sizes;
  if (!sizes) {
    return false;
  }
  std::vector<std::optional<Product>> targets;
  for (const Integer& size : *sizes) {
    targets.emplace_back(a.sizes.product({size}));
  }
  return regroup_dims(a, 0, a.rank(), targets);
}

bool unflatten_dim(const Application& a) {
  const std::optional<int64_t> at = a.dim("dim");
  const auto targets = products_of(Facts::argument(a.node(), "sizes"), a.facts);
  return at && targets && regroup_dims(a, *at, 1, *targets);
}

// Locations from 0 to 1 become a grid from -1 to 1.
bool double_it(const Application& a) {
  return a.facts.number(a.node()->input(1)) == 2.0 && a.layout.doubled++ == 0;
}

bool less_one(const Application& a) {
  const bool has_factor = a.node()->inputs().size() == 3;
  return a.facts.number(a.node()->input(1)) == 1.0 &&
         (!has_factor || a.facts.number(a.node()->input(2)) == 1.0) && a.layout.doubled++ == 1;
}

// Over one dimension of all levels and points.
bool softmax_points(const Application& a) {
  const std::optional<int64_t> at = a.dim("dim");
  if (!at || !a.facts.is_none(a.node(), "dtype") || a.layout.level || a.layout.softmax != nullptr) {
    return false;
  }
  const auto is_point = [](const Axis& axis) {
    return axis.role == Role::level || axis.role == Role::point;
  };
  for (int64_t i = 0; i < a.rank(); ++i) {
    const std::vector<Axis>& dim = a.layout.dims[i];
    if (i == *at ? !std::ranges::all_of(dim, is_point) : std::ranges::any_of(dim, is_point)) {
      return false;
    }
  }
  a.layout.softmax = a.node();
  return true;
}

using StepRule = bool (*)(const Application&);

const std::unordered_map<std::string, StepRule> kStepRules{{"aten::transpose", swap_dims},
                                                           {"aten::permute", permute_dims},
                                                           {"aten::unsqueeze", insert_dim},
                                                           {"aten::squeeze", remove_dim},
                                                           {"aten::select", select_level},
                                                           {"aten::unbind", unbind_level},
                                                           {"aten::split", split_dim},
                                                           {"aten::split_with_sizes", split_dim},
                                                           {"aten::slice", slice_all},
                                                           {"aten::flatten", flatten_dims},
                                                           {"aten::view", view_dims},
                                                           {"aten::reshape", view_dims},
                                                           {"aten::view_as", view_as_other},
                                                           {"aten::reshape_as", view_as_other},
                                                           {"aten::unflatten", unflatten_dim},
                                                           {"aten::contiguous", keep},
                                                           {"aten::clone", keep},
                                                           {"aten::softmax", softmax_points},
                                                           {"aten::mul", double_it},
                                                           {"aten::sub", less_one}};

bool is_list(const jit::Node* node) {
  return node->kind() == jit::aten::unbind || node->kind() == jit::aten::split ||
         node->kind() == jit::aten::split_with_sizes;
}

}  // namespace

std::optional<Step> step_of(const jit::Value* value) {
  auto* node = const_cast<jit::Node*>(value->node());  // NOLINT(*-const-cast)
  Step step{node, -1};
  if (node->kind() == jit::prim::ListUnpack) {
    step = {node->input(0)->node(), static_cast<int64_t>(value->offset())};
  } else if (node->kind() == jit::aten::__getitem__) {
    const std::optional<c10::IValue> index = jit::toIValue(node->input(1));
    step = {node->input(0)->node(), index && index->isInt() ? index->toInt() : -1};
  }
  const bool is_part = step.node != node;
  const bool has_rule = kStepRules.contains(step.node->kind().toQualString());
  if (!has_rule || is_part != is_list(step.node) || (is_part && step.part < 0)) {
    return std::nullopt;
  }
  return step;
}

bool apply(const Step& step, Layout& layout, Facts& facts, Equalities& sizes) {
  const StepRule rule = kStepRules.at(step.node->kind().toQualString());
  return rule({step, layout, facts, sizes});
}

}  // namespace warpfuse::rewriting
