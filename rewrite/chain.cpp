#include "chain.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "passes.h"

namespace warpfuse::rewriting {
namespace {

namespace jit = torch::jit;

bool is_used_once(const jit::Value* value) { return value->uses().size() == 1; }

// Whether the operator may read `value` where the softmax stands.
bool may_move(const jit::Value* value, const Writes& writes, std::string& note) {
  if (writes.reach(value)) {
    note = "written to in place";
    return false;
  }
  return true;
}

bool is_last(const Facts& facts, const jit::Value* input, int64_t dim) {
  const std::optional<Sizes>& sizes = facts.of(input).sizes;
  return dim == -1 || (sizes && dim + 1 == static_cast<int64_t>(sizes->size()));
}

bool is_power_of_two(double x) {
  int exponent = 0;
  return std::isfinite(x) && std::abs(std::frexp(x, &exponent)) == 0.5;  // NOLINT(*-magic-numbers)
}

// The cast of the softmax's result from float32 back to half precision `narrow`, if that is its
// only use.
jit::Node* narrowing(const Chain& chain, std::optional<c10::ScalarType> narrow, Facts& facts) {
  if (!is_used_once(chain.output) || (narrow != c10::kHalf && narrow != c10::kBFloat16)) {
    return nullptr;
  }
  jit::Node* user = chain.output->uses()[0].user;
  return is_cast(facts, user) && facts.of(user->output()).dtype == narrow ? user : nullptr;
}

// The dtype argument changes nothing, or only for the way from the scores' half precision to
// float32 and back, which the operator takes too.
bool accepts_dtype(Chain& chain, Facts& facts) {
  if (facts.is_none(chain.softmax, "dtype")) {
    return true;
  }
  const std::optional<c10::IValue> asked = facts.constant_argument(chain.softmax, "dtype");
  const std::optional<c10::ScalarType>& before = facts.of(chain.input).dtype;
  if (!asked || !before) {
    chain.note = "its dtype argument, and the scores' dtype is unknown";
    return false;
  }
  const auto dtype = static_cast<c10::ScalarType>(asked->toInt());
  if (dtype == *before) {
    return true;
  }
  jit::Node* user = dtype == c10::kFloat ? narrowing(chain, before, facts) : nullptr;
  if (user == nullptr) {
    chain.note = "its dtype argument is not the scores'";
    return false;
  }
  chain.output = user->output();
  chain.form.emplace_back("to");
  return true;
}

// Scores in half precision that are widened before the mask and narrowed after the softmax.
void skip_widening(Chain& chain, Facts& facts) {
  jit::Node* node = chain.input->node();
  if (!is_cast(facts, node) || !is_used_once(chain.input) ||
      facts.of(chain.input).dtype != c10::kFloat) {
    return;
  }
  if (jit::Node* user = narrowing(chain, facts.of(node->input(0)).dtype, facts)) {
    chain.input = node->input(0);
    chain.output = user->output();
    chain.form.insert(chain.form.begin(), "to");
    chain.form.emplace_back("to");
  }
}

// Takes a mask before those that were taken; whether that is equal.
bool take(const AppliedMask& applied, Chain& chain, Facts& facts, const Writes& writes,
          bool keep_nan) {
  const Mask& mask = applied.mask;
  const bool movable =
      may_move(chain.input, writes, chain.note) && may_move(applied.scores, writes, chain.note) &&
      (mask.positions == nullptr || may_move(mask.positions, writes, chain.note)) &&
      std::ranges::all_of(mask.tensors, [&](const Mask::Tensor& tensor) {
        return may_move(tensor.value, writes, chain.note);
      });
  const std::optional<Mask> both =
      movable ? combined(mask, chain.mask, facts, keep_nan, chain.note) : std::nullopt;
  if (both) {
    chain.mask = *both;
    chain.input = applied.scores;
  }
  return both.has_value();
}

void take_masks(Chain& chain, Facts& facts, const Writes& writes, bool keep_nan) {
  for (;;) {
    jit::Node* node = chain.input->node();
    const std::optional<AppliedMask> applied = applied_mask(node, facts, keep_nan, chain.note);
    if (!applied) {
      return;
    }
    if (!is_used_once(chain.input)) {
      chain.note = "the masked scores have another use";
      return;
    }
    if (!take(*applied, chain, facts, writes, keep_nan)) {
      return;
    }
    chain.form.insert(chain.form.begin(), node->kind().toUnqualString());
  }
}

void take_scale(Chain& chain, Facts& facts, const Writes& writes) {
  jit::Node* node = chain.input->node();
  const bool is_product = node->kind() == jit::aten::mul;
  if (!is_product && (node->kind() != jit::aten::div || node->inputs().size() != 2)) {
    return;
  }
  for (const size_t i : {1, 0}) {
    std::optional<double> factor = facts.number(node->input(i));
    if (!factor || (i == 0 && !is_product)) {
      continue;
    }
    jit::Value* scores = node->input(1 - i);
    const Fact& fact = facts.of(scores);
    if (fact.sizes != facts.of(chain.input).sizes || !may_be_float(fact)) {
      return;
    }
    if (!is_product && !is_power_of_two(*factor)) {
      chain.note = "a division that no product equals";
      return;
    }
    if (!are_unmasked(scores, facts)) {
      chain.note = "what is scaled is not proved to be a product of activations";
      return;
    }
    if (!is_used_once(chain.input)) {
      chain.note = "the scaled scores have another use";
      return;
    }
    if (may_move(chain.input, writes, chain.note) && may_move(scores, writes, chain.note)) {
      chain.scale = is_product ? *factor : 1 / *factor;
      chain.form.insert(chain.form.begin(), node->kind().toUnqualString());
      chain.input = scores;
    }
    return;
  }
}

// The chain with the mask of windows and all before it, if the scores end in one.
std::optional<Chain> with_windows(Chain& chain, Facts& facts, const Writes& writes, bool keep_nan) {
  const std::optional<Windows> windows = windows_of(chain.input, facts, keep_nan, chain.note);
  if (!windows) {
    return std::nullopt;
  }
  Chain whole = chain;
  if (!take(windows->applied, whole, facts, writes, keep_nan)) {
    chain.note = whole.note;
    return std::nullopt;
  }
  whole.windows = windows;
  whole.input = windows->split->input(0);
  const char* const masked = windows->merge->input(0)->node()->kind().toUnqualString();
  whole.form.insert(whole.form.begin(), {"view", masked, "view"});
  take_masks(whole, facts, writes, keep_nan);
  take_scale(whole, facts, writes);
  const c10::Symbol kind = whole.input->node()->kind();
  if ((kind != jit::aten::matmul && kind != jit::aten::bmm) ||  // others may be no view of windows
      !is_same_in_batch(whole.mask, facts) || !may_move(whole.input, writes, chain.note)) {
    chain.note = whole.note.empty() ? "the mask of windows is not alone on a product of activations"
                                    : whole.note;
    return std::nullopt;
  }
  return whole;
}

// The only use of the log-probabilities takes one of each row.
void take_logprob(Chain& chain, Facts& facts, const Writes& writes) {
  if (!is_used_once(chain.output) || !may_move(chain.output, writes, chain.note)) {
    return;
  }
  jit::Node* user = chain.output->uses()[0].user;
  if (user->owningBlock() == chain.softmax->owningBlock()) {
    chain.logprob = logprob_of(chain.input, user, facts, chain.note);
  }
  if (chain.logprob) {
    chain.form.emplace_back(user->kind().toUnqualString());
  }
}

// A linear layer whose result has no other use.
void take_linear(Chain& chain, const Writes& writes) {
  jit::Node* node = chain.input->node();
  const bool is_alone = node->kind() == jit::aten::linear && is_used_once(chain.input) &&
                        node->owningBlock() == chain.softmax->owningBlock();
  if (is_alone && may_move(chain.input, writes, chain.note) &&
      std::ranges::all_of(node->inputs(), [&](const jit::Value* operand) {
        return may_move(operand, writes, chain.note);
      })) {
    chain.linear = node;
    chain.form.insert(chain.form.begin(), "linear");
  }
}

}  // namespace

bool is_softmax(const jit::Node* node) {
  const c10::Symbol kind = node->kind();
  return kind == jit::aten::cross_entropy_loss || kind == jit::aten::softmax ||
         kind == jit::aten::log_softmax || kind == jit::aten::_softmax ||
         kind == jit::aten::_log_softmax;
}

Chain walk_up(jit::Node* softmax, Facts& facts, const Writes& writes, bool keep_nan) {
  Chain chain;
  chain.softmax = softmax;
  chain.input = softmax->input(0);
  chain.output = softmax->output();
  chain.is_log =
      softmax->kind() == jit::aten::log_softmax || softmax->kind() == jit::aten::_log_softmax;
  chain.form = {softmax->kind().toUnqualString()};
  const auto leave = [&](const char* why) {
    chain.is_left = true;
    chain.note = why;
    return chain;
  };
  if (softmax->kind() == jit::aten::cross_entropy_loss) {
    chain.logprob = cross_entropy(softmax, facts, chain.note);
    chain.is_left = !chain.logprob;
    return chain;
  }
  const std::optional<int64_t> dim = facts.known_integer(softmax, "dim");
  if (!dim) {
    return leave("its dim is no constant");
  }
  if (Facts::argument(softmax, "half_to_float") != nullptr) {
    const std::optional<c10::IValue> value = facts.constant_argument(softmax, "half_to_float");
    if (!value || !value->isBool() || value->toBool()) {
      return leave("half_to_float");
    }
  } else if (!accepts_dtype(chain, facts)) {
    return chain;
  }
  const bool is_over_last = is_last(facts, chain.input, *dim);
  if (chain.is_log) {
    if (is_over_last && may_move(chain.input, writes, chain.note)) {
      take_logprob(chain, facts, writes);
    }
    return chain;
  }
  if (!is_over_last) {
    chain.note = "not over the last dimension";
    return chain;
  }
  const std::optional<Sizes>& sizes = facts.of(chain.input).sizes;
  if (!sizes || sizes->size() < kMinRank || sizes->size() > kMaxRank) {
    chain.note = sizes ? "scores of " + std::to_string(sizes->size()) + " dimensions"
                       : "the number of the scores' dimensions is unknown";
    return chain;
  }
  skip_widening(chain, facts);
  if (std::optional<Chain> whole = with_windows(chain, facts, writes, keep_nan)) {
    chain = *std::move(whole);
  }
  take_masks(chain, facts, writes, keep_nan);
  take_scale(chain, facts, writes);
  // Where ATen makes such a row NaN, keys that a rule hides are 0.
  chain.mask.may_hide_rows |= chain.mask.has_rule() && !are_unmasked(chain.input, facts);
  if (chain.form.size() == 1) {
    take_linear(chain, writes);
  }
  chain.is_attention = chain.scale != 1 || !chain.mask.is_none();
  return chain;
}

}  // namespace warpfuse::rewriting
