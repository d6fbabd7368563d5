#include "regroup.h"

#include <utility>

namespace warpfuse::rewriting {
namespace {

// Where pixels [rows * columns] come first (or last), a dimension of `size` takes the rows (or
// columns) alone.
bool split_pixels(std::vector<Axis>& axes, const Product& size, bool from_front) {
  if (axes.empty() || !size.unknowns.empty()) {
    return false;
  }
  const size_t at = from_front ? 0 : axes.size() - 1;
  const Axis pixels = axes[at];
  const std::optional<int64_t> count = pixels.size.known();
  if (pixels.role != Role::pixel || pixels.is_row || pixels.is_column || !count ||
      size.number <= 1 || size.number >= *count || *count % size.number != 0) {
    return false;
  }
  const int64_t rows = from_front ? size.number : *count / size.number;
  axes[at] = {.role = Role::pixel, .size = {0, rows}, .is_row = true};
  axes.insert(axes.begin() + static_cast<int64_t>(at) + 1,
              Axis{.role = Role::pixel, .size = {0, *count / rows}, .is_column = true});
  return true;
}

// How many axes, from the front or the back, have the product `size`.
std::optional<size_t> count_of(const std::vector<Axis>& axes, const Product& size, bool from_front,
                               const Equalities& sizes) {
  for (size_t count = 0; count <= axes.size(); ++count) {
    const auto first = from_front ? axes.begin() : axes.end() - static_cast<int64_t>(count);
    if (sizes.are_equal(product_of_axes({first, first + static_cast<int64_t>(count)}, sizes),
                        size)) {
      return count;
    }
  }
  return std::nullopt;
}

// Takes the axes of one dimension away; nothing where there are none of that size.
std::optional<std::vector<Axis>> take(std::vector<Axis>& axes, const Product& size, bool from_front,
                                      const Equalities& sizes) {
  std::optional<size_t> count = count_of(axes, size, from_front, sizes);
  if (!count && split_pixels(axes, sizes.resolved(size), from_front)) {
    count = 1;
  }
  if (!count) {
    return std::nullopt;
  }
  const auto first = from_front ? axes.begin() : axes.end() - static_cast<int64_t>(*count);
  const auto last = first + static_cast<int64_t>(*count);
  std::vector<Axis> taken(first, last);
  axes.erase(first, last);
  return taken;
}

}  // namespace

Product product_of_axes(const std::vector<Axis>& axes, const Equalities& sizes) {
  std::vector<Integer> factors;
  factors.reserve(axes.size());
  for (const Axis& axis : axes) {
    factors.push_back(axis.size);
  }
  return sizes.product(factors);
}

std::optional<std::vector<std::vector<Axis>>> regrouped(
    std::vector<Axis> axes, const std::vector<std::optional<Product>>& targets, Equalities& sizes) {
  std::vector<std::vector<Axis>> groups(targets.size());
  size_t first = 0, last = targets.size();
  const auto take_into = [&](size_t dim, bool from_front) {
    const std::optional<Product>& target = targets[dim];
    std::optional<std::vector<Axis>> group =
        target ? take(axes, *target, from_front, sizes) : std::nullopt;
    if (group) {
      groups[dim] = *std::move(group);
    }
    return group.has_value();
  };
  while (first < last && take_into(first, true)) {
    ++first;
  }
  while (first < last && take_into(last - 1, false)) {
    --last;
  }
  if (last - first > 1 || (first == last && !axes.empty())) {
    return std::nullopt;
  }
  if (first < last) {
    const std::optional<Product>& target = targets[first];
    if (target && !sizes.equate(product_of_axes(axes, sizes), *target)) {
      return std::nullopt;
    }
    groups[first] = std::move(axes);
  }
  return groups;
}

}  // namespace warpfuse::rewriting
