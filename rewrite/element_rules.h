#pragma once

#include <optional>

#include "facts.h"

namespace warpfuse::rewriting {

// Operators that masks are made of, with the element of their result: arange, constants,
// comparisons, logic, choices and casts. Nothing for others.
std::optional<Fact> fact_of_mask(Facts& facts, torch::jit::Node* node);

}  // namespace warpfuse::rewriting
