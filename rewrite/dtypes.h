#pragma once

#include <optional>
#include <vector>

#include "facts.h"

namespace warpfuse::rewriting {

// A Python number or a bool, and no tensor, list or None.
bool is_number(const torch::jit::Value* value);

// The dtype that ATen promotes operands to; nothing where it depends on what is not known, such as
// the default dtype.
std::optional<c10::ScalarType> promoted(const Facts& facts,
                                        const std::vector<torch::jit::Value*>& operands);

// That of the node's argument `dtype`, or `otherwise` where the argument is not given.
std::optional<c10::ScalarType> asked_dtype(const Facts& facts, torch::jit::Node* node,
                                           std::optional<c10::ScalarType> otherwise);

// Whether it holds each coordinate as it is: float32 does up to 2^24, which no mask reaches.
bool holds_coordinates(std::optional<c10::ScalarType> dtype);

// Numbers, or a choice of two, as the dtype holds them; null for others, and for those that not
// every dtype holds if it is unknown.
ExpressionPtr in_dtype(const ExpressionPtr& element, std::optional<c10::ScalarType> dtype);

}  // namespace warpfuse::rewriting
