#include "windows.h"

#include <algorithm>

namespace warpfuse::rewriting {
namespace {

namespace jit = torch::jit;

constexpr size_t kMergedRank = 4, kSplitRank = 5;

bool is_view(const jit::Node* node) {
  return node->kind() == jit::aten::view || node->kind() == jit::aten::reshape;
}

// [.., H, N, M] of both are equal.
bool have_equal_ends(const std::optional<Sizes>& a, const std::optional<Sizes>& b) {
  constexpr int64_t kEnd = 3;
  return a && b && a->size() >= kEnd && b->size() >= kEnd &&
         std::equal(a->end() - kEnd, a->end(), b->end() - kEnd);
}

bool has_rank(const std::optional<Sizes>& sizes, size_t rank) {
  return sizes && sizes->size() == rank;
}

}  // namespace

std::optional<Windows> windows_of(jit::Value* merged, Facts& facts, bool keep_nan,
                                  std::string& note) {
  jit::Node* merge = merged->node();
  if (!is_view(merge) || !has_rank(facts.of(merge->input(0)).sizes, kSplitRank)) {
    return std::nullopt;
  }
  const jit::Value* masked = merge->input(0);
  const auto applied = applied_mask(merge->input(0)->node(), facts, keep_nan, note, kSplitRank);
  if (!applied || !is_view(applied->scores->node())) {
    return std::nullopt;
  }
  jit::Node* split = applied->scores->node();
  const std::optional<Sizes>& scores = facts.of(split->input(0)).sizes;
  const std::optional<Sizes>& windows = facts.of(applied->scores).sizes;
  if (merged->uses().size() != 1 || masked->uses().size() != 1 ||
      applied->scores->uses().size() != 1) {
    note = "the scores of windows have another use";
    return std::nullopt;
  }
  if (!has_rank(scores, kMergedRank) || !has_rank(windows, kSplitRank) ||
      !have_equal_ends(scores, windows) || !have_equal_ends(windows, facts.of(merged).sizes)) {
    note = "the views around a mask are not proved to be of windows";
    return std::nullopt;
  }
  return Windows{split, merge, *applied};
}

bool is_same_in_batch(const Mask& mask, const Facts& facts) {
  return mask.positions == nullptr && !mask.may_broadcast &&
         std::ranges::all_of(mask.tensors, [&](const Mask::Tensor& tensor) {
           const Sizes& sizes = *facts.of(tensor.value).sizes;
           return sizes.size() < kMergedRank || sizes[0].is(1);
         });
}

jit::Value* by_windows(jit::Graph& graph, const Windows& windows, jit::Value* scores,
                       jit::Value*& mask) {
  jit::Value* split = graph.insert(windows.split->kind(), {scores, windows.split->input(1)});
  if (mask != nullptr) {
    jit::Value* first = graph.insert(c10::aten::slice, {split, 0, 0, 1, 1});
    mask =
        graph.insert(c10::aten::flatten, {graph.insert(c10::aten::expand_as, {mask, first}), 1, 2});
  }
  return graph.insert(c10::aten::flatten, {split, 1, 2});
}

}  // namespace warpfuse::rewriting
