#include "mask.h"

namespace warpfuse::rewriting {
namespace {

namespace jit = torch::jit;
using Kind = Expression::Kind;

// `visible` is the condition by the coordinates of the scores.
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
    return Rule{.is_causal = true};
  }
  const bool is_row = query.kind == Kind::element && query.at.size() == 2 && key_offset == 0 &&
                      query.at[0].dim == 0 && query.at[0].offset == 0 &&
                      query.at[1].dim == queries && query.at[1].offset == 0 && rank > 2;
  if (!is_row) {
    return std::nullopt;
  }
  const Fact& positions = facts.of(query.tensor);
  const bool are_rows = positions.sizes && (*positions.sizes)[0] == scores[0] &&
                        (*positions.sizes)[1] == scores[queries];
  return are_rows && (positions.dtype == c10::kLong || positions.dtype == c10::kInt)
             ? std::optional(Rule{.positions = query.tensor})
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

}  // namespace

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

}  // namespace warpfuse::rewriting
