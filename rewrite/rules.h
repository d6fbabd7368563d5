#pragma once

#include <string>
#include <unordered_map>

#include "facts.h"

namespace warpfuse::rewriting {

// What an operator makes of the facts of its inputs.
using FactRule = Fact (*)(Facts&, torch::jit::Node*);
using RuleTable = std::unordered_map<std::string, FactRule>;  // by the operator's name

// Operators that read their input elsewhere: views, copies of a part, indexing.
extern const RuleTable kViewRules;
// Lists of parts of a tensor, and their parts.
extern const RuleTable kPartRules;
// Those that group the same elements into other dimensions, or join tensors.
extern const RuleTable kReshapeRules;
// Those that masks are made of, with the element of their result: arange, constants, comparisons,
// logic, choices and casts.
extern const RuleTable kElementRules;
// Products with weights or of activations, and samples of images.
extern const RuleTable kLayerRules;
// Arithmetic, reductions and functions of each element.
extern const RuleTable kArithmeticRules;

// A tensor of which only the dtype is known: that of x.
Fact unknown_as(const Fact& x);
// The dimension of x, the node's input, that its argument `dim` names.
std::optional<int64_t> dim_of(Facts& facts, torch::jit::Node* node, const Fact& x);

// What ListUnpack makes of a list of parts: a part's size is not that of all.
void set_size_of_part(Facts& facts, torch::jit::Node* unpack, size_t part, Fact& fact);

}  // namespace warpfuse::rewriting
