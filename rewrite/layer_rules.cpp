#include "layer_rules.h"

#include <string>
#include <unordered_map>

#include "view_rules.h"

namespace warpfuse::rewriting {
namespace {

namespace jit = torch::jit;

Fact embedding(Facts& facts, jit::Node* node) {
  Fact fact{.dtype = facts.of(node->input(0)).dtype, .sizes = std::nullopt, .element = nullptr};
  const Fact& indices = facts.of(node->input(1));
  if (indices.sizes) {
    fact.sizes = *indices.sizes;
    fact.sizes->push_back(facts.size(node->input(0), 1));
  }
  return fact;
}

// [.., n, k] x [.., k, m]
Fact matmul(Facts& facts, jit::Node* node) {
  const Fact &a = facts.of(node->input(0)), &b = facts.of(node->input(1));
  Fact fact{.dtype = a.dtype ? a.dtype : b.dtype, .sizes = std::nullopt, .element = nullptr};
  if (a.sizes && b.sizes && a.sizes->size() >= 2 && b.sizes->size() >= 2) {
    fact.sizes = broadcast(facts, Sizes(a.sizes->begin(), a.sizes->end() - 2),
                           Sizes(b.sizes->begin(), b.sizes->end() - 2));
    fact.sizes->push_back((*a.sizes)[a.sizes->size() - 2]);
    fact.sizes->push_back(b.sizes->back());
  }
  return fact;
}

Fact addmm(Facts& facts, jit::Node* node) {
  const Fact &a = facts.of(node->input(1)), &b = facts.of(node->input(2));
  Fact fact{.dtype = a.dtype ? a.dtype : b.dtype, .sizes = std::nullopt, .element = nullptr};
  if (b.sizes && b.sizes->size() == 2) {
    fact.sizes =
        Sizes{a.sizes && a.sizes->size() == 2 ? (*a.sizes)[0] : facts.new_unknown(), (*b.sizes)[1]};
  }
  return fact;
}

// [.., k] and weight [n, k]
Fact linear(Facts& facts, jit::Node* node) {
  const Fact &x = facts.of(node->input(0)), &weight = facts.of(node->input(1));
  Fact fact{.dtype = weight.dtype ? weight.dtype : x.dtype, .sizes = x.sizes, .element = nullptr};
  if (fact.sizes && !fact.sizes->empty()) {
    fact.sizes->back() = facts.size(node->input(1), 0);
  }
  return fact;
}

Fact convolution(Facts& facts, jit::Node* node) {
  Fact fact{.dtype = facts.of(node->input(1)).dtype, .sizes = std::nullopt, .element = nullptr};
  const Fact& weight = facts.of(node->input(1));
  if (weight.sizes) {
    fact.sizes.emplace();
    for (size_t i = 0; i < weight.sizes->size(); ++i) {
      fact.sizes->push_back(i == 1 ? (*weight.sizes)[0] : facts.new_unknown());
    }
  }
  return fact;
}

// Queries [.., n, d], keys [.., k, d] and values [.., k, m].
Fact attention(Facts& facts, jit::Node* node) {
  Fact fact{.dtype = facts.of(node->input(0)).dtype, .sizes = Sizes(), .element = nullptr};
  for (const size_t i : {0, 1, 2}) {
    const std::optional<Sizes>& sizes = facts.of(node->input(i)).sizes;
    if (!sizes || sizes->size() < 2) {
      fact.sizes.reset();
      return fact;
    }
    fact.sizes = broadcast(facts, *fact.sizes, Sizes(sizes->begin(), sizes->end() - 2));
  }
  fact.sizes->push_back(facts.size(node->input(0), -2));
  fact.sizes->push_back(facts.size(node->input(2), -1));
  return fact;
}

// Images [n, c, h, w] at places [n, y, x, 2].
Fact samples(Facts& facts, jit::Node* node) {
  const Fact &image = facts.of(node->input(0)), &grid = facts.of(node->input(1));
  Fact fact{.dtype = image.dtype, .sizes = std::nullopt, .element = nullptr};
  if (image.sizes && image.sizes->size() == 4 && grid.sizes && grid.sizes->size() == 4) {
    fact.sizes = Sizes{(*image.sizes)[0], (*image.sizes)[1], (*grid.sizes)[1], (*grid.sizes)[2]};
  }
  return fact;
}

using LayerRule = Fact (*)(Facts&, jit::Node*);

const std::unordered_map<std::string, LayerRule> kLayerRules{
    {"aten::embedding", embedding},
    {"aten::matmul", matmul},
    {"aten::bmm", matmul},
    {"aten::addmm", addmm},
    {"aten::linear", linear},
    {"aten::conv2d", convolution},
    {"aten::_convolution", convolution},
    {"aten::scaled_dot_product_attention", attention},
    {"aten::grid_sampler", samples}};

}  // namespace

std::optional<Fact> fact_of_layer(Facts& facts, jit::Node* node) {
  const auto rule = kLayerRules.find(node->kind().toQualString());
  return rule == kLayerRules.end() ? std::nullopt : std::optional(rule->second(facts, node));
}

}  // namespace warpfuse::rewriting
