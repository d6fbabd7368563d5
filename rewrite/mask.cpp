#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "chain.h"

namespace warpfuse::rewriting {
namespace {

namespace jit = torch::jit;
using Kind = Expression::Kind;

// A visible key: the condition by the coordinates of the scores.
struct Rule {
  Mask::Kind kind = Mask::Kind::none;
  jit::Value* positions = nullptr;
};

// Key index <= query index, or <= positions[batch, query].
std::optional<Rule> rule_of(const ExpressionPtr& visible, int64_t rank, Facts& facts,
                            const Sizes& scores) {
  if (!visible || (visible->kind != Kind::less_equal && visible->kind != Kind::less)) {
    return std::nullopt;
  }
  const int64_t keys = rank - 1, queries = rank - 2;
  const Expression &key = *visible->a, &query = *visible->b;
  if (key.kind != Kind::coordinate || key.coordinate.dim != keys) {
    return std::nullopt;
  }
  // j + a < i + b is j + a + 1 <= i + b.
  const int64_t key_offset = key.coordinate.offset + (visible->kind == Kind::less ? 1 : 0);
  if (query.kind == Kind::coordinate && query.coordinate.dim == queries &&
      query.coordinate.offset == key_offset) {
    return Rule{Mask::Kind::causal, nullptr};
  }
  const bool is_row = query.kind == Kind::element && query.at.size() == 2 && key_offset == 0 &&
                      query.at[0].dim == 0 && query.at[0].offset == 0 &&
                      query.at[1].dim == queries && query.at[1].offset == 0 && rank > 2;
  const std::optional<Sizes>& sizes = is_row ? facts.of(query.tensor).sizes : std::nullopt;
  if (sizes && (*sizes)[0] == scores[0] && (*sizes)[1] == scores[queries]) {
    return Rule{Mask::Kind::positions, query.tensor};
  }
  return std::nullopt;
}

// The rule of a mask that is visible where `visible` holds, if it has one.
std::optional<Rule> rule_of_mask(const ExpressionPtr& visible, const Sizes& mask,
                                 const Sizes& scores, Facts& facts) {
  const auto shift = static_cast<int64_t>(scores.size() - mask.size());
  std::vector<Coordinate> shifted(mask.size());
  for (size_t i = 0; i < shifted.size(); ++i) {
    shifted[i].dim = static_cast<int64_t>(i) + shift;
  }
  const bool covers = mask.size() >= 2 && mask.back() == scores.back() &&
                      mask[mask.size() - 2] == scores[scores.size() - 2];
  return covers ? rule_of(reindexed(visible, shifted), static_cast<int64_t>(scores.size()), facts,
                          scores)
                : std::nullopt;
}

// A matmul of the softmax's result with values that have as many rows as there are keys: a mask
// that made the rows longer would be an error there.
bool values_have_keys(const jit::Value* weights, const Integer& keys, Facts& facts) {
  const std::vector<jit::Use>& uses = weights->uses();
  if (uses.size() != 1) {
    return false;
  }
  jit::Node* user = uses[0].user;
  switch (user->kind()) {
    case jit::aten::to:
    case jit::aten::dropout:
    case jit::aten::softmax:
    case jit::aten::contiguous:
    case jit::aten::add:
      return values_have_keys(user->output(), keys, facts);
    case jit::aten::matmul: {
      const std::optional<Sizes>& values = facts.of(user->input(1)).sizes;
      return uses[0].offset == 0 && values && values->size() >= 2 &&
             (*values)[values->size() - 2] == keys;
    }
    default:
      return false;
  }
}

// Whether the mask broadcasts to the scores, and does not make them larger.
bool fits(const Sizes& mask, const Sizes& scores, const jit::Node* node, Facts& facts) {
  if (mask.size() > scores.size()) {
    return false;
  }
  const size_t shift = scores.size() - mask.size();
  for (size_t i = 0; i < mask.size(); ++i) {
    const bool is_last = i + 1 == mask.size();
    if (!mask[i].is(1) && mask[i] != scores[i + shift] &&
        !(is_last && values_have_keys(node->output(), scores.back(), facts))) {
      return false;
    }
  }
  return true;
}

// The sizes of scores that the operator takes; null for others.
const Sizes* sizes_of_scores(const Fact& fact) {
  const bool fits_operator =
      fact.sizes && fact.sizes->size() >= kLeastRank && fact.sizes->size() <= kMostRank;
  return fits_operator ? &*fact.sizes : nullptr;
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

// The fill as the dtype holds it; nothing where that overflows.
std::optional<double> rounded(double fill, c10::ScalarType dtype) {
  const auto value = at::scalar_tensor(fill, at::kDouble).to(dtype).to(at::kDouble).item<double>();
  return std::isinf(value) && !std::isinf(fill) ? std::nullopt : std::optional(value);
}

// Scores of which `fill` replaces those where the mask is `hidden` (or not `visible`).
std::optional<AppliedMask> filled(jit::Node* node, jit::Value* scores, jit::Value* mask,
                                  bool mask_is_hidden, double fill, Facts& facts, bool keep_nan,
                                  std::string& note) {
  const Fact &fact = facts.of(scores), &mask_fact = facts.of(mask);
  const Sizes* sizes = sizes_of_scores(fact);
  if (sizes == nullptr || !mask_fact.sizes || !fits(*mask_fact.sizes, *sizes, node, facts)) {
    note = "the mask is not proved to fit the scores";
    return std::nullopt;
  }
  const bool is_infinite = std::isinf(fill) && fill < 0;
  const ExpressionPtr visible = mask_is_hidden ? negation(mask_fact.element) : mask_fact.element;
  const std::optional<Rule> rule = rule_of_mask(visible, *mask_fact.sizes, *sizes, facts);
  AppliedMask result{.scores = scores, .mask = {}};
  if (rule && rule->kind == Mask::Kind::causal && are_unmasked(scores, facts) &&
      (is_infinite || (fact.dtype && hides_for_certain(fill, *fact.dtype)))) {
    result.mask.kind = Mask::Kind::causal;
    return result;
  }
  if (is_infinite && keep_nan) {
    note = "rows that the mask hides throughout are NaN (--keep-nan)";
    return std::nullopt;
  }
  result.mask.may_hide_rows = is_infinite;
  if (rule && rule->kind == Mask::Kind::positions && is_infinite && are_unmasked(scores, facts)) {
    result.mask.kind = Mask::Kind::positions;
    result.mask.tensor = rule->positions;
    return result;
  }
  if (!is_infinite) {
    const std::optional<double> value = fact.dtype ? rounded(fill, *fact.dtype) : std::nullopt;
    if (!value) {
      note =
          fact.dtype ? "the fill overflows in the scores' dtype" : "the scores' dtype is unknown";
      return std::nullopt;
    }
    result.mask.fill = value;
  }
  if (mask_fact.dtype != c10::kBool) {
    note = "the mask is not proved to be boolean";
    return std::nullopt;
  }
  result.mask.kind = Mask::Kind::boolean;
  result.mask.tensor = mask;
  result.mask.tensor_is_hidden = mask_is_hidden;
  return result;
}

std::optional<AppliedMask> added(jit::Node* node, jit::Value* scores, jit::Value* mask,
                                 Facts& facts, bool keep_nan, std::string& note) {
  const Fact &fact = facts.of(scores), &mask_fact = facts.of(mask);
  const Sizes* sizes = sizes_of_scores(fact);
  if (sizes == nullptr || !mask_fact.sizes || mask_fact.sizes->empty() ||
      !fits(*mask_fact.sizes, *sizes, node, facts)) {
    note = "the addend is not proved to fit the scores";
    return std::nullopt;
  }
  if (!fact.dtype || mask_fact.dtype != fact.dtype) {
    note = fact.dtype && mask_fact.dtype ? "the addend has another dtype than the scores"
                                         : "the dtype of the scores or the addend is unknown";
    return std::nullopt;
  }
  AppliedMask result{.scores = scores, .mask = {}};
  const ExpressionPtr& addend = mask_fact.element;
  bool is_finite = false;
  if (addend && addend->kind == Kind::select && is_uniform(addend->a) && is_uniform(addend->b)) {
    const bool hides = is_constant(addend->b, 0) && addend->a->number < 0;
    const ExpressionPtr visible = hides ? negation(addend->condition) : addend->condition;
    const double fill = hides ? addend->a->number : addend->b->number;
    const std::optional<Rule> rule = rule_of_mask(visible, *mask_fact.sizes, *sizes, facts);
    if (rule && rule->kind == Mask::Kind::causal && hides_for_certain(fill, *fact.dtype) &&
        are_unmasked(scores, facts) && (hides || is_constant(addend->a, 0))) {
      result.mask.kind = Mask::Kind::causal;
      return result;
    }
    is_finite = std::isfinite(addend->a->number) && std::isfinite(addend->b->number);
  }
  if (!is_finite && keep_nan) {
    note = "an addend of -inf may make rows NaN (--keep-nan)";
    return std::nullopt;
  }
  result.mask = {.kind = Mask::Kind::additive, .tensor = mask, .may_hide_rows = !is_finite};
  return result;
}

}  // namespace

bool are_unmasked(const jit::Value* scores, const Facts& facts) {
  const jit::Node* node = scores->node();
  const auto is_number = [&](size_t i) { return facts.number(node->input(i)).has_value(); };
  switch (node->kind()) {
    case jit::aten::matmul:
    case jit::aten::bmm:
    case jit::aten::embedding:
    case jit::prim::GetAttr:
      return true;
    case jit::aten::mul:
      return (is_number(0) && are_unmasked(node->input(1), facts)) ||
             (is_number(1) && are_unmasked(node->input(0), facts));
    case jit::aten::div:
      return is_number(1) && are_unmasked(node->input(0), facts);
    case jit::aten::add:
      return are_unmasked(node->input(0), facts) && are_unmasked(node->input(1), facts);
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

std::optional<AppliedMask> applied_mask(jit::Node* node, Facts& facts, bool keep_nan,
                                        std::string& note) {
  switch (node->kind()) {
    case jit::aten::masked_fill: {
      const std::optional<double> fill = facts.number(node->input(2));
      return fill ? filled(node, node->input(0), node->input(1), true, *fill, facts, keep_nan, note)
                  : std::nullopt;
    }
    case jit::aten::where:
      for (const bool mask_is_hidden : {false, true}) {
        if (node->inputs().size() != 3) {
          break;
        }
        if (const auto fill = facts.number(node->input(mask_is_hidden ? 1 : 2))) {
          return filled(node, node->input(mask_is_hidden ? 2 : 1), node->input(0), mask_is_hidden,
                        *fill, facts, keep_nan, note);
        }
      }
      return std::nullopt;
    case jit::aten::add: {
      if (facts.number(node->input(2)) != 1.0) {
        return std::nullopt;
      }
      for (const size_t i : {0, 1}) {
        // The scores are the operand that was made for this alone.
        jit::Value* scores = node->input(i);
        if (scores->uses().size() == 1) {
          std::string why;
          if (auto result = added(node, scores, node->input(1 - i), facts, keep_nan, why)) {
            return result;
          }
          note = note.empty() ? why : note;
        }
      }
      return std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

}  // namespace warpfuse::rewriting
