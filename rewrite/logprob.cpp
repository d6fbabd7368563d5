#include "logprob.h"

#include <ATen/core/Reduction.h>

#include <limits>

namespace warpfuse::rewriting {
namespace {

namespace jit = torch::jit;

// gather has no target that it ignores.
constexpr int64_t kNoIndex = std::numeric_limits<int64_t>::min();

std::optional<Logprob> gathered(jit::Value* logits, jit::Node* gather, Facts& facts,
                                std::string& note) {
  const std::optional<Sizes>& rows = facts.of(logits).sizes;
  jit::Value* index = gather->input(2);
  const std::optional<int64_t> dim = facts.known_integer(gather, "dim");
  if (!rows || rows->size() < 2 || !dim ||
      (*dim != -1 && *dim + 1 != static_cast<int64_t>(rows->size()))) {
    note = "the gather is not proved to be along the last dimension";
    return std::nullopt;
  }
  Sizes one_per_row = *rows;
  one_per_row.back() = {0, 1};
  if (facts.of(index).sizes != one_per_row) {
    note = "the gather is not proved to take one column of each row";
    return std::nullopt;
  }
  return Logprob{.last = gather, .logits = logits, .targets = index, .ignore_index = kNoIndex};
}

// nll_loss_nd and cross_entropy_loss, of logits [N, V] and class indices [N].
std::optional<Logprob> loss_of(jit::Value* logits, jit::Node* loss, Facts& facts,
                               std::string& note) {
  jit::Value* targets = Facts::argument(loss, "target");
  const std::optional<Sizes>&rows = facts.of(logits).sizes, &sizes = facts.of(targets).sizes;
  if (!rows || rows->size() != 2 || !sizes || sizes->size() != 1) {
    note = "logits [N, V] and targets [N] are not proved";
    return std::nullopt;
  }
  if (facts.of(targets).dtype != c10::kLong) {
    note = "the targets are not proved to be int64";
    return std::nullopt;
  }
  const std::optional<int64_t> ignore_index = facts.known_integer(loss, "ignore_index");
  const std::optional<int64_t> reduction = facts.known_integer(loss, "reduction");
  const jit::Value* smoothing = Facts::argument(loss, "label_smoothing");
  if (!ignore_index || !reduction || !facts.is_none(loss, "weight") ||
      (smoothing != nullptr && facts.number(smoothing) != 0.0)) {
    note = "class weights, smoothed labels, or an option that is no constant";
    return std::nullopt;
  }
  return Logprob{.last = loss,
                 .logits = logits,
                 .targets = targets,
                 .ignore_index = *ignore_index,
                 .reduction = *reduction};
}

// The result in the dtype that ATen's has: that of `before`.
std::optional<Logprob> in_dtype_of(std::optional<Logprob> logprob, const jit::Value* before,
                                   Facts& facts, std::string& note) {
  const std::optional<c10::ScalarType>& dtype = facts.of(before).dtype;
  if (logprob && !dtype) {
    note = "the dtype of the logits is unknown";
    return std::nullopt;
  }
  if (logprob) {
    logprob->dtype = *dtype;
  }
  return logprob;
}

}  // namespace

std::optional<Logprob> logprob_of(jit::Value* logits, jit::Node* user, Facts& facts,
                                  std::string& note) {
  const bool is_loss = user->kind() == jit::aten::nll_loss_nd;
  if (!is_loss && user->kind() != jit::aten::gather) {
    return std::nullopt;
  }
  return in_dtype_of(
      is_loss ? loss_of(logits, user, facts, note) : gathered(logits, user, facts, note),
      user->input(0), facts, note);
}

std::optional<Logprob> cross_entropy(jit::Node* loss, Facts& facts, std::string& note) {
  jit::Value* logits = loss->input(0);
  return in_dtype_of(loss_of(logits, loss, facts, note), logits, facts, note);
}

jit::Value* emit_logprob(jit::Graph& graph, const Logprob& logprob) {
  const jit::WithInsertPoint at_last(logprob.last);
  const bool is_gather = logprob.last->kind() == jit::aten::gather;
  jit::Value* targets =
      is_gather ? graph.insert(c10::aten::squeeze, {logprob.targets, -1}) : logprob.targets;
  jit::Value* result = graph.insert(c10::Symbol::fromQualString("warpfuse::fused_logprob"),
                                    {logprob.logits, targets, logprob.ignore_index, 1.0, false});
  result->node()->setSourceRange(logprob.last->sourceRange());
  result->node()->setScope(logprob.last->scope());
  if (is_gather) {
    result = graph.insert(c10::aten::unsqueeze, {result, -1});
  } else {
    if (logprob.reduction != at::Reduction::None) {
      result = graph.insert(c10::aten::sum, {result});
    }
    if (logprob.reduction == at::Reduction::Mean) {
      jit::Value* counts = graph.insert(c10::aten::ne, {targets, logprob.ignore_index});
      result = graph.insert(c10::aten::div, {result, graph.insert(c10::aten::sum, {counts})});
    }
    result = graph.insert(c10::aten::neg, {result});
  }
  if (logprob.dtype == c10::kHalf || logprob.dtype == c10::kBFloat16) {
    result = graph.insert(c10::aten::to, {result, static_cast<int64_t>(logprob.dtype)});
  }
  return result;
}

}  // namespace warpfuse::rewriting
