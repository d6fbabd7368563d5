#pragma once

#include <optional>
#include <vector>

#include "facts.h"

namespace warpfuse::rewriting {

// The sizes of an elementwise result. Where two sizes are not proved equal and none is 1, theirs is
// unknown.
Sizes broadcast(Facts& facts, const Sizes& a, const Sizes& b);
std::optional<Sizes> broadcast_sizes(Facts& facts, const std::vector<torch::jit::Value*>& operands);

// The operands' elements by the coordinates of the result; null where one is unknown.
std::vector<ExpressionPtr> broadcast_elements(Facts& facts,
                                              const std::vector<torch::jit::Value*>& operands,
                                              const std::optional<Sizes>& sizes);

// What ListUnpack makes of a list of parts whose sizes were listed.
void set_size_of_part(Facts& facts, torch::jit::Node* unpack, size_t part, Fact& fact);

// Operators that read their input elsewhere: views, copies of a part, indexing. Nothing for others.
std::optional<Fact> fact_of_view(Facts& facts, torch::jit::Node* node);

}  // namespace warpfuse::rewriting
