#include "operand.h"

namespace warpfuse::rewriting {
namespace {

namespace jit = torch::jit;

constexpr int kDeepestBroadcast = 8;

bool is_arithmetic(const jit::Node* node) {
  return node->kind() == jit::aten::add || node->kind() == jit::aten::sub ||
         node->kind() == jit::aten::mul || node->kind() == jit::aten::div;
}

// NOLINTNEXTLINE(misc-no-recursion): it follows the operands.
void learn_sizes(jit::Value* value, jit::Value* result, int64_t rank, int depth, Facts& facts,
                 Equalities& sizes) {
  if (const std::optional<Sizes>& known = facts.of(value).sizes) {
    const int64_t shift = rank - static_cast<int64_t>(known->size());
    for (size_t i = 0; i < known->size() && shift >= 0; ++i) {
      if ((*known)[i].known() && !(*known)[i].is(1)) {
        sizes.equate(facts.size(result, shift + static_cast<int64_t>(i)), (*known)[i]);
      }
    }
  } else if (is_arithmetic(value->node()) && depth < kDeepestBroadcast) {
    for (const size_t i : {0, 1}) {
      learn_sizes(value->node()->input(i), result, rank, depth + 1, facts, sizes);
    }
  }
}

}  // namespace

void learn_from_broadcast(jit::Value* value, int64_t rank, Facts& facts, Equalities& sizes) {
  learn_sizes(value, value, rank, 0, facts, sizes);
}

std::vector<Route> routes_to(jit::Value* value, std::optional<int64_t> rank, Facts& facts) {
  std::vector<Route> routes;
  Route route{value, rank, {}};
  while (true) {
    if (const std::optional<Sizes>& sizes = facts.of(route.tensor).sizes) {
      route.rank = static_cast<int64_t>(sizes->size());
    }
    routes.push_back(route);
    const std::optional<Step> step = step_of(route.tensor);
    if (!step) {
      return routes;
    }
    route.rank = rank_before(*step, route.rank, facts);
    route.tensor = step->node->input(0);
    route.steps.insert(route.steps.begin(), *step);
  }
}

std::optional<Layout> applied(const Route& route, Layout layout, Facts& facts, Equalities& sizes) {
  for (const Step& step : route.steps) {
    if (!apply(step, layout, facts, sizes)) {
      return std::nullopt;
    }
  }
  return layout;
}

std::optional<Operand> operand_of(OperandKind kind, const Route& route, int64_t levels,
                                  Facts& facts, Equalities& sizes) {
  const auto rank = route.rank.value_or(0);
  const auto axis = [&](Role role, int64_t dim) {
    return Axis{.role = role, .size = facts.size(route.tensor, dim)};
  };
  Operand operand{.tensor = route.tensor, .dims = {}};
  if (kind == OperandKind::value) {
    if (rank != 4) {
      return std::nullopt;
    }
    operand.dims = {{axis(Role::batch, 0)},
                    {axis(Role::pixel, 1)},
                    {axis(Role::head, 2)},
                    {axis(Role::channel, 3)}};
    return operand;
  }
  const int64_t without_coordinates = kind == OperandKind::locations ? rank - 1 : rank;
  operand.has_merged_points = without_coordinates == 4;
  if (!operand.has_merged_points && without_coordinates != 5) {
    return std::nullopt;
  }
  learn_from_broadcast(route.tensor, rank, facts, sizes);
  operand.dims = {{axis(Role::batch, 0)}, {axis(Role::query, 1)}, {axis(Role::head, 2)}};
  if (operand.has_merged_points) {
    const std::optional<int64_t> count = sizes.resolved(facts.size(route.tensor, 3)).known();
    if (!count || *count % levels != 0) {
      return std::nullopt;
    }
    operand.dims.push_back({Axis{.role = Role::level, .size = {0, levels}},
                            Axis{.role = Role::point, .size = {0, *count / levels}}});
  } else {
    if (!sizes.resolved(facts.size(route.tensor, 3)).is(levels)) {
      return std::nullopt;
    }
    operand.dims.push_back({axis(Role::level, 3)});
    operand.dims.push_back({axis(Role::point, 4)});
  }
  if (kind == OperandKind::locations) {
    operand.dims.push_back({Axis{.role = Role::coordinate, .size = {0, 2}}});
  }
  return operand;
}

}  // namespace warpfuse::rewriting
