#pragma once

#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/ir/ir.h>
#include <warpfuse/rewrite.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "attributes.h"
#include "expression.h"
#include "writes.h"

namespace warpfuse::rewriting {

using Sizes = std::vector<Integer>;

// What the graph and the module's constants prove of a tensor, whatever the arguments are. Sizes
// are taken to be at least 1.
struct Fact {
  std::optional<c10::ScalarType> dtype;
  std::optional<Sizes> sizes;
  ExpressionPtr element;  // null: anything
};

// Whether its elements can be read: it is there, and neither sparse nor quantized.
bool is_dense(const at::Tensor& tensor);

// A dimension counted from the front; nothing for one that is not known, or that a tensor of `rank`
// dimensions lacks.
std::optional<int64_t> from_front(std::optional<int64_t> dim, size_t rank);

// Facts of all values of a graph that has been inlined, its blocks included.
class Facts {
 public:
  // What is written to in place, before or after, has no element, nor sizes that change so.
  // `arguments`: those of the method behind the module; may be fewer.
  Facts(const Attributes& attributes, torch::jit::Graph& graph, const Writes& writes,
        const std::vector<RewriteArgument>& arguments);

  const Fact& of(const torch::jit::Value* tensor) const;
  Integer integer(torch::jit::Value* value);

  // The value of a constant, or of an attribute of the module, which nothing changes.
  std::optional<c10::IValue> constant_value(const torch::jit::Value* value) const;
  // The same of an argument by its name in the operator's schema; nothing where there is none.
  std::optional<c10::IValue> constant_argument(torch::jit::Node* node, const char* name) const;
  bool is_none(torch::jit::Node* node, const char* name) const;
  // The number of a Scalar constant, or of a tensor constant without dimensions.
  std::optional<double> number(const torch::jit::Value* value) const;

  // The rules by operator (rules.cpp).
  Integer new_unknown() { return {++unknowns_, 0}; }
  // The size of a tensor along a dimension that may count from the end.
  Integer size(torch::jit::Value* tensor, int64_t dim);
  // An argument by its name in the operator's schema; null where there is none.
  static torch::jit::Value* argument(torch::jit::Node* node, const char* name);
  std::optional<int64_t> known_integer(torch::jit::Node* node, const char* name);
  // The dimension that an argument names, of a tensor of `rank` dimensions.
  std::optional<int64_t> dim(torch::jit::Node* node, const char* name, size_t rank);
  // The elements of a list of integers.
  std::optional<std::vector<Integer>> integers(torch::jit::Value* list);
  // The values that a list is made of, where nothing changes it.
  std::optional<at::ArrayRef<torch::jit::Value*>> elements(torch::jit::Value* list) const;

 private:
  void set_argument(torch::jit::Value* value, const RewriteArgument& argument);
  void visit(torch::jit::Block* block);
  void visit(torch::jit::Node* node);
  Integer computed_integer(torch::jit::Value* value);
  // What a constant or an attribute holds, though it may be written to in place.
  std::optional<c10::IValue> held_value(const torch::jit::Value* value) const;
  bool is_written(const torch::jit::Value* value) const;
  // Gives a tensor its own element where no other is known. What a write in place may change is
  // taken from the fact.
  void complete(torch::jit::Value* value, Fact& fact) const;

  const Attributes& attributes_;
  torch::jit::Graph& graph_;
  const Writes& writes_;
  std::map<std::string, Integer> named_sizes_;
  std::unordered_map<const torch::jit::Value*, Fact> facts_;
  std::unordered_map<const torch::jit::Value*, Integer> integers_;
  std::map<std::pair<const torch::jit::Value*, int64_t>, Integer> sizes_of_unknown_rank_;
  int64_t unknowns_ = 0;
};

// The rule of the node's operator, for its first output. Nothing where there is none.
Fact fact_by_rule(Facts& facts, torch::jit::Node* node);

}  // namespace warpfuse::rewriting
