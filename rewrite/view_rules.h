#pragma once

#include <optional>

#include "facts.h"

namespace warpfuse::rewriting {

// What ListUnpack makes of a list of parts whose sizes were listed.
void set_size_of_part(Facts& facts, torch::jit::Node* unpack, size_t part, Fact& fact);

// Operators that read their input elsewhere: views, copies of a part, indexing. Nothing for others.
std::optional<Fact> fact_of_view(Facts& facts, torch::jit::Node* node);

}  // namespace warpfuse::rewriting
