#pragma once

#include <optional>
#include <vector>

#include "facts.h"

namespace warpfuse::rewriting {

// The sizes of an elementwise result. Where two sizes are not proved equal and none is 1, theirs is
// unknown.
Sizes broadcast(Facts& facts, const Sizes& a, const Sizes& b);
std::optional<Sizes> broadcast_sizes(Facts& facts, const std::vector<torch::jit::Value*>& operands);

// How a tensor of `from` is read by the coordinates of `to`, aligned at the right. Nothing if a
// size is neither 1 nor proved equal.
std::optional<std::vector<Coordinate>> broadcast_coordinates(const Sizes& from, const Sizes& to);

// The operands' elements by the coordinates of the result; null where one is unknown.
std::vector<ExpressionPtr> broadcast_elements(Facts& facts,
                                              const std::vector<torch::jit::Value*>& operands,
                                              const std::optional<Sizes>& sizes);

}  // namespace warpfuse::rewriting
