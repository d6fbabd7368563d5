#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include "facts.h"
#include "product.h"

namespace warpfuse::rewriting {

// What an index of deformable attention counts.
enum class Role { batch, pixel, head, channel, query, level, point, coordinate };

struct Axis {
  Role role;
  Integer size;
  bool is_row = false;  // pixels of a level as rows and columns: the rows
  bool is_column = false;
};

// A tensor as a rearrangement of another one. A dimension has axes as a matrix has rows and
// columns, the last counts fastest; axes of size 1 are left out.
struct Layout {
  std::vector<std::vector<Axis>> dims;
  std::optional<int64_t> level = {};    // the one that was taken
  int64_t first_pixel = 0;              // of the range that was taken
  std::optional<int64_t> pixels = {};   // of that range
  int doubled = 0;                      // 1: times two, 2: and less one
  torch::jit::Node* softmax = nullptr;  // over all levels and points
};

// The axes of each dimension.
Layout layout_of(const std::vector<std::vector<Axis>>& dims, const Equalities& sizes);

// Whether the dimensions have these roles, where axes of size 1 are missing.
bool has_roles(const Layout& layout, std::initializer_list<std::vector<Role>> roles);

// An operator that rearranges its first input, or computes each element of it; of one that makes a
// list, one part.
struct Step {
  torch::jit::Node* node = nullptr;
  int64_t part = -1;
};

// The step that made a value, if one did; its input is node->input(0).
std::optional<Step> step_of(const torch::jit::Value* value);

// How many dimensions the input of a step has whose result has `rank`; nothing where that is
// unknown.
std::optional<int64_t> rank_before(const Step& step, std::optional<int64_t> rank, Facts& facts);

// Applies a step. What follows from its success is taken into `sizes`. False where the result is
// not known.
bool apply(const Step& step, Layout& layout, Facts& facts, Equalities& sizes);

}  // namespace warpfuse::rewriting
