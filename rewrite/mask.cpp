#include "mask.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>

namespace warpfuse::rewriting {
namespace {

namespace jit = torch::jit;
using Kind = Expression::Kind;

// The fill as the dtype holds it; nothing where that overflows.
std::optional<double> rounded(double fill, c10::ScalarType dtype) {
  const auto value = at::scalar_tensor(fill, at::kDouble).to(dtype).to(at::kDouble).item<double>();
  return std::isinf(value) && !std::isinf(fill) ? std::nullopt : std::optional(value);
}

// Scores of as many dimensions as may be, and a mask that broadcasts to them; none for others.
std::optional<AppliedMask> broadcast_to(jit::Value* scores, jit::Value* mask, jit::Node* node,
                                        Facts& facts, size_t max_rank) {
  const std::optional<Sizes>&sizes = facts.of(scores).sizes, &of_mask = facts.of(mask).sizes;
  if (!sizes || !of_mask || sizes->size() < kMinRank || !may_be_float(facts.of(scores)) ||
      std::max(sizes->size(), of_mask->size()) > max_rank) {
    return std::nullopt;
  }
  AppliedMask result{.scores = scores, .mask = {}};
  result.mask.may_broadcast = !fits(*of_mask, *sizes, node, facts);
  return result;
}

// Whether a key with this fill has no weight in a row that sees a key. Under -inf the scores may
// have a fill already, but a row that ATen makes NaN has zeros then.
bool is_rule_for(double fill, const jit::Value* scores, const Facts& facts, bool keep_nan) {
  const bool is_infinite = std::isinf(fill) && fill < 0;
  const std::optional<c10::ScalarType>& dtype = facts.of(scores).dtype;
  return (is_infinite && !keep_nan) ||
         ((is_infinite || (dtype && hides_for_certain(fill, *dtype))) &&
          are_unmasked(scores, facts));
}

// Scores of which `fill` replaces those where the mask is `hidden` (or not `visible`).
std::optional<AppliedMask> filled(jit::Node* node, jit::Value* scores, jit::Value* mask,
                                  bool mask_is_hidden, double fill, Facts& facts, bool keep_nan,
                                  std::string& note, size_t max_rank) {
  std::optional<AppliedMask> result = broadcast_to(scores, mask, node, facts, max_rank);
  const Fact &fact = facts.of(scores), &mask_fact = facts.of(mask);
  if (!result || !fact.sizes || !mask_fact.sizes) {
    note = may_be_float(fact) ? "the number of dimensions of the scores or the mask is unknown"
                              : "the scores are integers";
    return std::nullopt;
  }
  Mask& taken = result->mask;
  const bool is_infinite = std::isinf(fill) && fill < 0;
  const ExpressionPtr visible = mask_is_hidden ? negation(mask_fact.element) : mask_fact.element;
  const std::optional<Rule> rule =
      taken.may_broadcast ? std::nullopt
                          : rule_of_mask(visible, *mask_fact.sizes, *fact.sizes, facts);
  if (rule && rule->is_causal && is_rule_for(fill, scores, facts, keep_nan)) {
    taken.is_causal = true;
    taken.has_finite_rule = !is_infinite;
    return result;
  }
  if (is_infinite && keep_nan) {
    note = "rows that the mask hides throughout are NaN (--keep-nan)";
    return std::nullopt;
  }
  taken.may_hide_rows = is_infinite;
  if (rule && rule->positions != nullptr && is_infinite) {
    taken.positions = rule->positions;
    return result;
  }
  if (!is_infinite) {
    taken.fill = fact.dtype ? rounded(fill, *fact.dtype) : std::nullopt;
    if (!taken.fill) {
      note =
          fact.dtype ? "the fill overflows in the scores' dtype" : "the scores' dtype is unknown";
      return std::nullopt;
    }
  }
  if (mask_fact.dtype != c10::kBool) {
    note = "the mask is not proved to be boolean";
    return std::nullopt;
  }
  taken.kind = Mask::Kind::boolean;
  taken.tensors = {{mask, mask_is_hidden}};
  return result;
}

// Whether each key's addend is 0, or hides it for certain, by the causal rule.
bool is_causal_addend(const AppliedMask& applied, const Fact& addend, Facts& facts, bool keep_nan) {
  const ExpressionPtr& element = addend.element;
  const Fact& scores = facts.of(applied.scores);
  if (applied.mask.may_broadcast || !addend.sizes || !scores.sizes || !element ||
      element->kind != Kind::select || !is_uniform(element->a) || !is_uniform(element->b)) {
    return false;
  }
  const bool hides = is_constant(element->b, 0) && element->a->number < 0;
  const double fill = hides ? element->a->number : element->b->number;
  const ExpressionPtr visible = hides ? negation(element->condition) : element->condition;
  const std::optional<Rule> rule = rule_of_mask(visible, *addend.sizes, *scores.sizes, facts);
  return rule && rule->is_causal && (hides || is_constant(element->a, 0)) &&
         is_rule_for(fill, applied.scores, facts, keep_nan);
}

std::optional<AppliedMask> added(jit::Node* node, jit::Value* scores, jit::Value* addend,
                                 Facts& facts, bool keep_nan, std::string& note, size_t max_rank) {
  std::optional<AppliedMask> result = broadcast_to(scores, addend, node, facts, max_rank);
  const Fact &fact = facts.of(scores), &mask_fact = facts.of(addend);
  if (!result || !mask_fact.sizes || mask_fact.sizes->empty()) {
    note = result ? "a number is added" : "the number of dimensions of an addend is unknown";
    return std::nullopt;
  }
  if (!fact.dtype || mask_fact.dtype != fact.dtype) {
    note = fact.dtype && mask_fact.dtype ? "the addend has another dtype than the scores"
                                         : "the dtype of the scores or the addend is unknown";
    return std::nullopt;
  }
  const std::vector<double> numbers = choices(mask_fact.element);
  Mask& taken = result->mask;
  if (is_causal_addend(*result, mask_fact, facts, keep_nan)) {
    taken.is_causal = true;
    taken.has_finite_rule =
        std::ranges::all_of(numbers, [](double each) { return std::isfinite(each); });
    return result;
  }
  const bool is_finite = are_unmasked(addend, facts) ||
                         (!numbers.empty() && std::ranges::all_of(numbers, [](double each) {
                           return std::isfinite(each);
                         }));
  if (!is_finite && keep_nan) {
    note = "an addend of -inf may make rows NaN (--keep-nan)";
    return std::nullopt;
  }
  taken.kind = Mask::Kind::additive;
  taken.tensors = {{addend}};
  taken.may_hide_rows = !is_finite;
  return result;
}

// The scores are the operand that was made for this alone: of two, the one to which the other is
// proved to broadcast, else a product of activations.
std::optional<AppliedMask> added(jit::Node* node, Facts& facts, bool keep_nan, std::string& note,
                                 size_t max_rank) {
  if (facts.number(node->input(2)) != 1.0) {
    return std::nullopt;
  }
  for (const bool may_broadcast : {false, true}) {
    for (const size_t i : {0, 1}) {
      jit::Value* scores = node->input(i);
      if (scores->uses().size() != 1 || (may_broadcast && !are_unmasked(scores, facts))) {
        continue;
      }
      std::string why;
      auto result = added(node, scores, node->input(1 - i), facts, keep_nan, why, max_rank);
      if (result && (may_broadcast || !result->mask.may_broadcast)) {
        return result;
      }
      if (note.empty()) {
        note = result ? "the addend is not proved to fit the scores" : why;
      }
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<AppliedMask> applied_mask(jit::Node* node, Facts& facts, bool keep_nan,
                                        std::string& note, size_t max_rank) {
  switch (node->kind()) {
    case jit::aten::masked_fill: {
      const std::optional<double> fill = facts.number(node->input(2));
      return fill ? filled(node, node->input(0), node->input(1), true, *fill, facts, keep_nan, note,
                           max_rank)
                  : std::nullopt;
    }
    case jit::aten::where:
      for (const bool mask_is_hidden : {false, true}) {
        if (node->inputs().size() != 3) {
          break;
        }
        if (const auto fill = facts.number(node->input(mask_is_hidden ? 1 : 2))) {
          return filled(node, node->input(mask_is_hidden ? 2 : 1), node->input(0), mask_is_hidden,
                        *fill, facts, keep_nan, note, max_rank);
        }
      }
      return std::nullopt;
    case jit::aten::add:
      return added(node, facts, keep_nan, note, max_rank);
    default:
      return std::nullopt;
  }
}

}  // namespace warpfuse::rewriting
