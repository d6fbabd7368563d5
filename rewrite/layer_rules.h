#pragma once

#include <optional>

#include "facts.h"

namespace warpfuse::rewriting {

// Products with weights or of activations, and samples of images. Nothing for other operators.
std::optional<Fact> fact_of_layer(Facts& facts, torch::jit::Node* node);

}  // namespace warpfuse::rewriting
