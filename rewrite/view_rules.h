#pragma once

#include <optional>

#include "facts.h"

namespace warpfuse::rewriting {

// Operators that read their input elsewhere: views, copies of a part, indexing. Nothing for others.
std::optional<Fact> fact_of_view(Facts& facts, torch::jit::Node* node);

}  // namespace warpfuse::rewriting
