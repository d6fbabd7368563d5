#include "layout.h"

#include <algorithm>
#include <iterator>

namespace warpfuse::rewriting {

namespace jit = torch::jit;

Layout layout_of(const std::vector<std::vector<Axis>>& dims, const Equalities& sizes) {
  Layout layout{.dims = dims};
  for (std::vector<Axis>& dim : layout.dims) {
    for (Axis& axis : dim) {
      axis.size = sizes.resolved(axis.size);
    }
    std::erase_if(dim, [](const Axis& axis) { return axis.size.is(1); });
  }
  return layout;
}

bool has_roles(const Layout& layout, std::initializer_list<std::vector<Role>> roles) {
  std::vector<Role> present;
  for (const std::vector<Axis>& dim : layout.dims) {
    std::ranges::transform(dim, std::back_inserter(present), &Axis::role);
  }
  const auto matches = [&](const std::vector<Axis>& dim, std::vector<Role> expected) {
    std::erase_if(expected, [&](Role role) { return std::ranges::count(present, role) == 0; });
    return std::ranges::equal(dim, expected, {}, &Axis::role);
  };
  return std::ranges::equal(layout.dims, roles, matches);
}

std::optional<int64_t> rank_before(const Step& step, std::optional<int64_t> rank, Facts& facts) {
  jit::Node* node = step.node;
  const auto shifted = [&](int64_t by) { return rank ? std::optional(*rank + by) : std::nullopt; };
  switch (node->kind()) {
    case jit::aten::view:
    case jit::aten::reshape:
    case jit::aten::view_as:
    case jit::aten::reshape_as:
      return std::nullopt;
    case jit::aten::permute: {
      const auto dims = facts.integers(Facts::argument(node, "dims"));
      return dims ? std::optional(static_cast<int64_t>(dims->size())) : std::nullopt;
    }
    case jit::aten::unsqueeze:
      return shifted(-1);
    case jit::aten::squeeze:
    case jit::aten::select:
    case jit::aten::unbind:
      return shifted(1);
    case jit::aten::flatten: {
      const std::optional<int64_t> first = facts.known_integer(node, "start_dim");
      const std::optional<int64_t> last = facts.known_integer(node, "end_dim");
      return first && last && (*first < 0) == (*last < 0) ? shifted(*last - *first) : std::nullopt;
    }
    case jit::aten::unflatten: {
      const auto parts = products_of(Facts::argument(node, "sizes"), facts);
      return parts ? shifted(1 - static_cast<int64_t>(parts->size())) : std::nullopt;
    }
    default:
      return rank;
  }
}

}  // namespace warpfuse::rewriting
