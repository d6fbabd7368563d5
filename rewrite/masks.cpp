// What two masks are together, and which scores have none.

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "mask.h"

namespace warpfuse::rewriting {
namespace {

namespace jit = torch::jit;

// Up to this magnitude two roundings of float32 leave a weight's first five digits alone.
constexpr double kSmallAddend = 128;

bool is_small(double number) { return std::abs(number) <= kSmallAddend; }

// Weights and biases, not a mask: they hold no fill.
bool is_learned(const std::optional<c10::IValue>& value) {
  if (!value || !value->isTensor() || !is_dense(value->toTensor())) {
    return false;
  }
  const at::Tensor& tensor = value->toTensor();
  return tensor.is_floating_point() && tensor.numel() > 0 &&
         is_small(tensor.abs().max().to(at::kDouble).item<double>());
}

// Whether scores + a + b is scores + (a + b) but for rounding of small numbers, for each b of which
// this holds too: a key that a fill hides for certain has no weight in both.
bool adds_in_any_order(const jit::Value* addend, const Facts& facts) {
  const Fact& fact = facts.of(addend);
  const std::vector<double> numbers = choices(fact.element);
  return are_unmasked(addend, facts) ||
         (!numbers.empty() && fact.dtype && std::ranges::all_of(numbers, [&](double each) {
           return is_small(each) || hides_for_certain(each, *fact.dtype);
         }));
}

bool all_of(const Mask& mask, const Facts& facts,
            bool (*condition)(const jit::Value*, const Facts&)) {
  return std::ranges::all_of(
      mask.tensors, [&](const Mask::Tensor& tensor) { return condition(tensor.value, facts); });
}

// Two fills at one key may be -inf together.
bool sum_may_overflow(const Mask& inner, const Mask& outer, const Facts& facts) {
  return inner.kind == Mask::Kind::additive && outer.kind == Mask::Kind::additive &&
         !all_of(inner, facts, are_unmasked) && !all_of(outer, facts, are_unmasked);
}

// Why `outer` over `inner` is not what the operator computes of both; empty: it is.
std::string conflict(const Mask& inner, const Mask& outer, const Facts& facts, bool keep_nan) {
  if ((inner.has_rule() || outer.has_rule()) && (inner.may_broadcast || outer.may_broadcast)) {
    return "a mask that is not proved to fit the scores, beside a rule";
  }
  if (inner.positions != nullptr && outer.positions != nullptr &&
      inner.positions != outer.positions) {
    return "two masks by positions";
  }
  if (inner.has_rule() && outer.kind == Mask::Kind::boolean &&
      (outer.fill || inner.has_finite_rule)) {
    return "a fill over keys that a rule hides";
  }
  if (inner.has_finite_rule && outer.kind == Mask::Kind::additive &&
      !all_of(outer, facts, are_unmasked)) {
    return "a mask is added to keys that a finite fill hides";
  }
  if (inner.kind == Mask::Kind::none || outer.kind == Mask::Kind::none) {
    return "";
  }
  if (inner.kind != outer.kind) {
    return "a boolean mask beside an additive one";
  }
  if (inner.kind == Mask::Kind::boolean) {
    return inner.fill == outer.fill ? "" : "two masks with different fills";
  }
  if (!all_of(inner, facts, adds_in_any_order) || !all_of(outer, facts, adds_in_any_order)) {
    return "two added masks, whose sum would be rounded otherwise";
  }
  return keep_nan && sum_may_overflow(inner, outer, facts)
             ? "the sum of two masks may be -inf throughout a row (--keep-nan)"
             : "";
}

}  // namespace

std::optional<Mask> combined(const Mask& inner, const Mask& outer, const Facts& facts,
                             bool keep_nan, std::string& note) {
  if (std::string why = conflict(inner, outer, facts, keep_nan); !why.empty()) {
    note = std::move(why);
    return std::nullopt;
  }
  Mask both = outer;
  both.is_causal = inner.is_causal || outer.is_causal;
  both.positions = inner.positions != nullptr ? inner.positions : outer.positions;
  both.has_finite_rule = inner.has_finite_rule || outer.has_finite_rule;
  both.may_broadcast = inner.may_broadcast || outer.may_broadcast;
  both.may_hide_rows =
      inner.may_hide_rows || outer.may_hide_rows || sum_may_overflow(inner, outer, facts);
  if (inner.kind != Mask::Kind::none) {
    both.kind = inner.kind;
    both.fill = inner.fill;
    both.tensors.insert(both.tensors.begin(), inner.tensors.begin(), inner.tensors.end());
  }
  return both;
}

bool may_be_float(const Fact& scores) {
  return !scores.dtype || c10::isFloatingType(*scores.dtype);
}

bool hides_for_certain(double fill, c10::ScalarType dtype) {
  double lowest = std::numeric_limits<float>::lowest();
  if (dtype == c10::kHalf) {
    lowest = -static_cast<double>(std::numeric_limits<c10::Half>::max());
  } else if (dtype == c10::kDouble) {
    lowest = std::numeric_limits<double>::lowest();
  }
  return fill <= lowest / 2;
}

bool are_unmasked(const jit::Value* scores, const Facts& facts) {
  const jit::Node* node = scores->node();
  const auto is_number = [&](size_t i) { return facts.number(node->input(i)).has_value(); };
  switch (node->kind()) {
    case jit::aten::matmul:
    case jit::aten::bmm:
      return true;
    case jit::aten::mul:
      return (is_number(0) && are_unmasked(node->input(1), facts)) ||
             (is_number(1) && are_unmasked(node->input(0), facts));
    case jit::aten::div:
      return is_number(1) && are_unmasked(node->input(0), facts);
    case jit::aten::add:
      return are_unmasked(node->input(0), facts) && are_unmasked(node->input(1), facts);
    case jit::prim::GetAttr:
    case jit::prim::Constant:
      return is_learned(facts.constant_value(scores));
    case jit::aten::embedding:
    case jit::aten::contiguous:
    case jit::aten::expand:
    case jit::aten::slice:
    case jit::aten::view:
    case jit::aten::reshape:
    case jit::aten::permute:
    case jit::aten::transpose:
    case jit::aten::unsqueeze:
    case jit::aten::index:
    case jit::aten::to:
      return are_unmasked(node->input(0), facts);
    default:
      return false;
  }
}

}  // namespace warpfuse::rewriting
