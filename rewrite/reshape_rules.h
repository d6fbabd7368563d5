#pragma once

#include <optional>

#include "facts.h"

namespace warpfuse::rewriting {

// Operators that group the same elements into other dimensions, or join tensors. Nothing for
// others.
std::optional<Fact> fact_of_reshape(Facts& facts, torch::jit::Node* node);

}  // namespace warpfuse::rewriting
