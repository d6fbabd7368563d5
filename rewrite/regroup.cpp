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
  for (; first < last && targets[first]; ++first) {
    std::optional<std::vector<Axis>> group = take(axes, *targets[first], true, sizes);
    if (!group) {
      break;
    }
    groups[first] = *std::move(group);
  }
  for (; first < last && targets[last - 1]; --last) {
    std::optional<std::vector<Axis>> group = take(axes, *targets[last - 1], false, sizes);
    if (!group) {
      break;
    }
    groups[last - 1] = *std::move(group);
  }
  if (last - first > 1 || (first == last && !axes.empty())) {
    return std::nullopt;
  }
  if (first < last) {
    if (targets[first] && !sizes.equate(product_of_axes(axes, sizes), *targets[first])) {
      return std::nullopt;
    }
    groups[first] = std::move(axes);
  }
  return groups;
}

}  // namespace warpfuse::rewriting
