#include "product.h"

#include <algorithm>
#include <tuple>

namespace warpfuse::rewriting {
namespace {

namespace jit = torch::jit;

Product times(Product a, const Product& b) {
  a.number *= b.number;
  a.unknowns.insert(a.unknowns.end(), b.unknowns.begin(), b.unknowns.end());
  std::ranges::sort(a.unknowns, {},
                    [](const Integer& size) { return std::tuple(size.unknown, size.constant); });
  return a;
}

Product product_of_one(const Integer& size) {
  return size.known() ? Product{*size.known(), {}} : Product{1, {size}};
}

// Removes the factors that both have.
void cancel(std::vector<Integer>& a, std::vector<Integer>& b) {
  std::erase_if(a, [&](const Integer& size) {
    const auto same = std::ranges::find(b, size);
    const bool is_in_both = same != b.end();
    if (is_in_both) {
      b.erase(same);
    }
    return is_in_both;
  });
}

}  // namespace

Integer Equalities::resolved(const Integer& size) const {
  const auto found = values_.find(size.unknown);
  return size.known() || found == values_.end() ? size : resolved(found->second + size.constant);
}

Product Equalities::resolved(const Product& product) const {
  Product result{product.number, {}};
  for (const Integer& size : product.unknowns) {
    result = times(result, product_of_one(resolved(size)));
  }
  return result;
}

Product Equalities::product(const std::vector<Integer>& sizes) const {
  Product result;
  for (const Integer& size : sizes) {
    result = times(result, product_of_one(resolved(size)));
  }
  return result;
}

bool Equalities::equate(const Integer& a, const Integer& b) {
  return equate(product_of_one(a), product_of_one(b));
}

bool Equalities::equate(const Product& a, const Product& b) {
  Product x = resolved(a), y = resolved(b);
  cancel(x.unknowns, y.unknowns);
  if (x.unknowns.empty()) {
    std::swap(x, y);
  }
  if (x.unknowns.empty()) {
    return x.number == y.number;
  }
  if (x.unknowns.size() > 1 || y.unknowns.size() > 1 || x.number == 0) {
    return false;
  }
  const Integer unknown = x.unknowns[0];
  Integer value;
  if (y.unknowns.empty()) {
    if (y.number % x.number != 0) {
      return false;
    }
    value = {0, y.number / x.number};
  } else if (x.number == y.number) {
    value = y.unknowns[0];
  } else {
    return false;
  }
  if (value.unknown == unknown.unknown) {
    return false;
  }
  values_[unknown.unknown] = value + -unknown.constant;
  taken_.emplace_back(unknown, value);
  return true;
}

Product product_of(jit::Value* integer, Facts& facts) {
  const jit::Node* node = integer->node();
  switch (node->kind()) {
    case jit::prim::NumToTensor:
    case jit::aten::Int:
    case jit::aten::ScalarImplicit:
    case jit::aten::IntImplicit:
      return product_of(node->input(0), facts);
    case jit::aten::mul:
      return times(product_of(node->input(0), facts), product_of(node->input(1), facts));
    default:
      return product_of_one(facts.integer(integer));
  }
}

std::optional<std::vector<std::optional<Product>>> products_of(jit::Value* list, Facts& facts) {
  std::vector<std::optional<Product>> result;
  const auto add = [&](const Product& product) {
    const bool is_open = product == Product{-1, {}};
    result.push_back(is_open ? std::nullopt : std::optional(product));
  };
  if (const auto values = facts.elements(list)) {
    for (jit::Value* value : *values) {
      add(product_of(value, facts));
    }
    return result;
  }
  const std::optional<std::vector<Integer>> sizes = facts.integers(list);
  if (!sizes) {
    return std::nullopt;
  }
  for (const Integer& size : *sizes) {
    add(product_of_one(size));
  }
  return result;
}

}  // namespace warpfuse::rewriting
