#include "runtime/decode/prompt_pieces.h"

#include <ATen/ops/zeros.h>
#include <warpfuse/fused_logprob.h>

#include <set>

#include "runtime/errors.h"

namespace warpfuse::host {
namespace {

constexpr int64_t kShortPiece = 32;
// Padding included: bounds how long a piece of several prompts holds up a step.
constexpr int64_t kMaxTokensTogether = 512;
constexpr int64_t kMaxPromptsTogether = 16;
constexpr int64_t kFewPrompts = 4;
constexpr int64_t kIgnored = -100;

int64_t most_prompts(int64_t tokens) {
  return std::min(kMaxTokensTogether / tokens, kMaxPromptsTogether);
}

}  // namespace

PromptPieces::PromptPieces(const LanguageModel& model, GraphCache& graphs, bool with_graphs)
    : model_(model), graphs_(graphs), with_graphs_(with_graphs) {
  const int64_t context = model.spec().context;
  one_ = model.make_cache(1, context);
  several_ =
      model.make_cache(with_graphs ? kMaxPromptsTogether : 1, std::min(kPieceTokens, context));
  const at::TensorOptions integers = at::TensorOptions(at::kLong).device(model.device());
  input_ = at::zeros({3 * kMaxTokensTogether + 2 * kMaxPromptsTogether}, integers);
  prompt_scores_ = at::zeros({context}, integers.dtype(at::kFloat));
}

int64_t PromptPieces::cache_bytes(const LanguageModel& model) {
  const int64_t context = model.spec().context;
  return model.cache_bytes(1, context) +
         model.cache_bytes(kMaxPromptsTogether, std::min(kPieceTokens, context));
}

void PromptPieces::remove(int64_t sequence) {
  std::erase_if(waiting_, [=](const Prompt& each) { return each.sequence.name == sequence; });
}

int64_t PromptPieces::padded(int64_t tokens) const {
  if (!with_graphs_) {
    return tokens;
  }
  return std::min(tokens <= kShortPiece ? kShortPiece : kPieceTokens, model_.spec().context);
}

// How many prompts like the first one a piece takes in.
size_t PromptPieces::most_together() const {
  const Prompt& front = waiting_.front();
  const auto length = static_cast<int64_t>(front.sequence.ids.size());
  if (!with_graphs_ || front.taken > 0 || length > kPieceTokens || front.sequence.prompt_scored) {
    return 1;
  }
  return static_cast<size_t>(most_prompts(padded(length)));
}

// How many of the waiting prompts the next piece takes in.
size_t PromptPieces::together() const {
  const size_t most = std::min(most_together(), waiting_.size());
  const int64_t tokens = padded(static_cast<int64_t>(waiting_.front().sequence.ids.size()));
  const auto fits = [&](const Prompt& each) {
    return static_cast<int64_t>(each.sequence.ids.size()) <= tokens && !each.sequence.prompt_scored;
  };
  size_t count = 1;
  while (count < most && fits(waiting_[count])) {
    ++count;
  }
  return count;
}

bool PromptPieces::has_room() const {
  return together() == waiting_.size() && waiting_.size() < most_together();
}

PromptPieces::Shape PromptPieces::fill_input(size_t prompts) {
  const Prompt& front = waiting_.front();
  const int64_t left = static_cast<int64_t>(front.sequence.ids.size()) - front.taken;
  const int64_t tokens = padded(std::min(left, kPieceTokens));
  const auto count = static_cast<int64_t>(prompts);
  Shape shape{
      .prompts = count, .tokens = tokens, .slots = 0, .scored = front.sequence.prompt_scored};
  if (count > 1) {
    // Few counts occur; the places of prompts that are not there take in token 0.
    shape.prompts = count <= kFewPrompts ? kFewPrompts : most_prompts(tokens);
  }
  const auto size = static_cast<size_t>(shape.prompts * tokens);
  std::vector<int64_t> input(3 * size + 2 * static_cast<size_t>(shape.prompts));
  int64_t end = tokens;
  for (size_t i = 0; i < static_cast<size_t>(shape.prompts); ++i) {
    int64_t* ids = input.data() + i * static_cast<size_t>(tokens);
    int64_t* positions = ids + size;
    int64_t* targets = positions + size;
    std::fill_n(targets, tokens, kIgnored);
    int64_t begin = 0;
    if (i < prompts) {
      Prompt& prompt = waiting_[i];
      const auto length = static_cast<int64_t>(prompt.sequence.ids.size());
      const int64_t taken = std::min(prompt.taken + kPieceTokens, length);
      // The padding ends with the context: the piece begins with tokens that were in already.
      begin = std::min(prompt.taken, model_.spec().context - tokens);
      end = begin + tokens;
      std::ranges::copy(prompt.sequence.ids.subspan(begin, taken - begin), ids);
      std::ranges::copy(prompt.sequence.ids.subspan(begin + 1, std::min(taken, length - 1) - begin),
                        targets);
      input[3 * size + i] = taken - begin - 1;
      input[3 * size + static_cast<size_t>(shape.prompts) + i] = prompt.row;
      prompt.taken = taken;
    }
    for (int64_t t = 0; t < tokens; ++t) {
      positions[t] = begin + t;
    }
  }
  shape.slots = model_.slots_for(end);
  input_.narrow(0, 0, static_cast<int64_t>(input.size())).copy_(to_device(input, model_.device()));
  return shape;
}

Cache PromptPieces::own_cache(const Shape& shape) const {
  return (shape.prompts == 1 ? one_ : several_).rows(0, shape.prompts).slots(shape.slots);
}

void PromptPieces::compute(const Shape& shape) {
  const auto& [prompts, tokens, slots, scored] = shape;
  const int64_t size = prompts * tokens;
  const at::Tensor ids = input_.narrow(0, 0, size).view({prompts, tokens});
  const at::Tensor positions = input_.narrow(0, size, size).view({prompts, tokens});
  const at::Tensor last = input_.narrow(0, 3 * size, prompts);
  at::Tensor logits;
  if (scored) {
    const at::Tensor all = model_.forward(ids, positions, own_cache(shape)).select(0, 0);
    const at::Tensor targets = input_.narrow(0, 2 * size, tokens);
    const at::Tensor scores = translating_errors(ExitCode::model, "fused_logprob", [&] {
      return fused_logprob(all, targets, kIgnored).to(at::kFloat);
    });
    prompt_scores_.index_copy_(0, positions.select(0, 0), scores);
    logits = all.index_select(0, last);
  } else {
    logits = model_.prefill(ids, positions, last, own_cache(shape));
  }
  if (!logits_.defined()) {
    logits_ = at::empty({with_graphs_ ? kMaxPromptsTogether : 1, logits.size(1)}, logits.options());
  }
  logits_.narrow(0, 0, prompts).copy_(logits);
}

GraphCache::Work PromptPieces::work_of(const Shape& shape) {
  const auto work = [this, shape] { compute(shape); };
  const auto kind = shape.scored ? GraphCache::Kind::scored_piece : GraphCache::Kind::piece;
  return {.key = {kind, shape.prompts, shape.tokens, shape.slots}, .run = work, .warm_up = work};
}

PromptPieces::Done PromptPieces::next(const Cache& cache) {
  if (may_hold_nan_ && waiting_.front().taken == 0) {
    one_.entries.zero_();
    several_.entries.zero_();
    may_hold_nan_ = false;
  }
  const size_t count = together();
  const Shape shape = fill_input(count);
  graphs_.run(work_of(shape));
  Done done;
  const Prompt& front = waiting_.front();
  const auto length = static_cast<int64_t>(front.sequence.ids.size());
  if (front.taken < length) {
    return done;
  }
  if (shape.scored) {
    done.prompt_scores = at::empty(
        {length - 1}, at::TensorOptions(at::kFloat).pinned_memory(model_.device().is_cuda()));
    done.prompt_scores.copy_(prompt_scores_.narrow(0, 0, length - 1), /*non_blocking=*/true);
  }
  const auto prompts = static_cast<int64_t>(count);
  done.logits = logits_.narrow(0, 0, prompts);
  const auto end = waiting_.begin() + static_cast<std::ptrdiff_t>(count);
  done.prompts.assign(waiting_.begin(), end);
  waiting_.erase(waiting_.begin(), end);
  int64_t longest = 0;
  for (const Prompt& prompt : done.prompts) {
    longest = std::max(longest, static_cast<int64_t>(prompt.sequence.ids.size()));
  }
  const at::Tensor rows =
      input_.narrow(0, 3 * shape.prompts * shape.tokens + shape.prompts, prompts);
  cache.slots(longest).entries.index_copy_(
      2, rows, own_cache(shape).rows(0, prompts).slots(longest).entries);
  return done;
}

void PromptPieces::prepare() {
  const auto prepare = [this](const Shape& shape) { graphs_.prepare(work_of(shape)); };
  input_.zero_();  // no position is past the slots
  const int64_t most_slots = model_.slots_for(model_.spec().context);
  for (const int64_t tokens : std::set{padded(1), padded(kPieceTokens)}) {
    for (int64_t end = tokens; end <= most_slots; end = model_.slots_for(end) + 1) {
      for (const bool scored : {false, true}) {
        prepare({.prompts = 1, .tokens = tokens, .slots = model_.slots_for(end), .scored = scored});
      }
    }
    for (const int64_t prompts : std::set{kFewPrompts, most_prompts(tokens)}) {
      prepare({.prompts = prompts,
               .tokens = tokens,
               .slots = model_.slots_for(tokens),
               .scored = false});
    }
  }
}

}  // namespace warpfuse::host
