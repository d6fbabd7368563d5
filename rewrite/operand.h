#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "facts.h"
#include "layout.h"
#include "product.h"

namespace warpfuse::rewriting {

// A tensor that ms_deform_attn reads.
struct Operand {
  torch::jit::Value* tensor = nullptr;
  std::vector<std::vector<Axis>> dims;  // of the tensor
  bool has_merged_points = false;       // levels and points are one dimension
  // Dimensions whose sizes the graph asks for and the operator does not: an error for others.
  std::vector<std::pair<int64_t, int64_t>> checked_sizes = {};
};

// A tensor, and how it becomes the one that was asked for.
struct Route {
  torch::jit::Value* tensor = nullptr;
  std::optional<int64_t> rank;
  std::vector<Step> steps;  // in the order of their execution
};

// From the value itself upwards. `rank`: its number of dimensions, where that is known.
std::vector<Route> routes_to(torch::jit::Value* value, std::optional<int64_t> rank, Facts& facts);

std::optional<Layout> applied(const Route& route, Layout layout, Facts& facts, Equalities& sizes);

// What a tensor's dimensions may be: value, locations or weights.
enum class OperandKind { value, locations, weights };

// The dimensions of a tensor that is taken for an operand of so many levels; nothing for another
// number of dimensions.
std::optional<Operand> operand_of(OperandKind kind, const Route& route, int64_t levels,
                                  Facts& facts, Equalities& sizes);

// Sizes of a broadcast that are at least those of an operand, where that has more than one: of a
// sum, product or quotient whose number of dimensions is known, and not those of each operand.
void learn_from_broadcast(torch::jit::Value* value, int64_t rank, Facts& facts, Equalities& sizes);

}  // namespace warpfuse::rewriting
