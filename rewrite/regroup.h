#pragma once

#include <optional>
#include <vector>

#include "layout.h"

namespace warpfuse::rewriting {

Product product_of_axes(const std::vector<Axis>& axes, const Equalities& sizes);

// What a view of these sizes makes of axes: one group per dimension. Where one dimension is left
// for what is left of the axes, the two have the same number of elements, which is taken into
// `sizes`. The pixels of a level may be split into rows and columns.
std::optional<std::vector<std::vector<Axis>>> regrouped(
    std::vector<Axis> axes, const std::vector<std::optional<Product>>& targets, Equalities& sizes);

}  // namespace warpfuse::rewriting
