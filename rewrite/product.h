#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "facts.h"

namespace warpfuse::rewriting {

// A product of sizes: a number times unknown ones.
struct Product {
  int64_t number = 1;
  std::vector<Integer> unknowns;  // sorted

  bool operator==(const Product&) const = default;
};

// What is known of unknown sizes: each is itself, a number, or another one plus a number.
class Equalities {
 public:
  Integer resolved(const Integer& size) const;
  Product resolved(const Product& product) const;
  Product product(const std::vector<Integer>& sizes) const;
  // Takes the two to be equal. False if one equality of two sizes does not follow.
  bool equate(const Product& a, const Product& b);
  bool equate(const Integer& a, const Integer& b);
  bool are_equal(const Product& a, const Product& b) const { return resolved(a) == resolved(b); }
  // What equate() took, in the order of the calls.
  const std::vector<std::pair<Integer, Integer>>& taken() const { return taken_; }

 private:
  std::map<int64_t, Integer> values_;  // by the unknown's number
  std::vector<std::pair<Integer, Integer>> taken_;
};

// An integer of the graph, through the products of sizes that a trace has.
Product product_of(torch::jit::Value* integer, Facts& facts);

// The elements of a list of integers; one without a value is -1, which the others decide.
std::optional<std::vector<std::optional<Product>>> products_of(torch::jit::Value* list,
                                                               Facts& facts);

}  // namespace warpfuse::rewriting
