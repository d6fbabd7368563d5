#include "runtime/decode/decode_loop.h"

namespace warpfuse::host {

std::vector<DecodeLoop::Row>::const_iterator DecodeLoop::first_free() const {
  return std::ranges::find(rows_, kNone, &Row::sequence);
}

int64_t DecodeLoop::free_rows() const {
  const auto first = first_free();
  const auto is_taken = [](const Row& row) { return row.sequence != kNone; };
  return std::find_if(first, rows_.end(), is_taken) - first;
}

std::vector<SequenceToken> DecodeLoop::start(const std::vector<Sequence>& sequences) {
  const int64_t first = first_free() - rows_.begin();
  std::vector<Choice> choices = steps_.start(first, sequences);
  std::vector<SequenceToken> tokens;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Sequence& sequence = sequences[i];
    const int64_t wanted = sequence.tokens - 1;
    rows_[first + i] = {.sequence = wanted > 0 ? sequence.name : kNone,
                        .length = static_cast<int64_t>(sequence.ids.size()),
                        .to_launch = wanted,
                        .to_read = wanted};
    tokens.push_back({.sequence = sequence.name, .choice = std::move(choices[i])});
  }
  return tokens;
}

void DecodeLoop::enter(const Sequence& sequence) {
  const auto row = static_cast<size_t>(first_free() - rows_.begin());
  steps_.deactivate(static_cast<int64_t>(row));  // whoever had it before
  rows_[row] = {.sequence = sequence.name};
  steps_.pieces().add(static_cast<int64_t>(row), sequence);
}

void DecodeLoop::launch_piece() {
  const std::vector<PromptPieces::Prompt> prompts = steps_.launch_piece();
  if (prompts.empty()) {
    return;
  }
  Unread unread{.sequences = std::vector<int64_t>(rows_.size(), kNone), .is_step = false};
  for (const auto& [row, sequence, taken] : prompts) {
    const int64_t steps = std::max(sequence.tokens - 1, int64_t{0});
    rows_[row] = {.sequence = sequence.name,
                  .length = sequence.tokens > 0 ? taken : 0,
                  .to_launch = steps,
                  .to_read = 1 + steps};
    unread.sequences[row] = sequence.name;
  }
  unread_.push_back(std::move(unread));
}

void DecodeLoop::stop(int64_t sequence) {
  if (steps_.has_pieces()) {
    steps_.pieces().remove(sequence);
  }
  const auto row = std::ranges::find(rows_, sequence, &Row::sequence);
  if (row != rows_.end()) {
    row->sequence = kNone;
    row->to_launch = 0;
  }
}

void DecodeLoop::stop_poisoned(int64_t sequence) {
  const auto row = std::ranges::find(rows_, sequence, &Row::sequence);
  if (row != rows_.end()) {
    steps_.clear(row - rows_.begin());
  }
  stop(sequence);
}

bool DecodeLoop::wants_step() const {
  return std::ranges::any_of(rows_, [](const Row& row) { return row.to_launch > 0; });
}

// A piece holds up every row that runs by half a step or more, however many short prompts it takes
// in: until the waiting ones have lost as much, it waits for others to join them.
bool DecodeLoop::wants_piece() {
  const auto running =
      std::ranges::count_if(rows_, [](const Row& row) { return row.to_launch > 0; });
  return steps_.has_pieces() && (running == 0 || (between_steps_ && (!steps_.pieces().has_room() ||
                                                                     2 * waited_ >= running)));
}

bool DecodeLoop::has_room_for_step() {
  const int64_t most = steps_.max_ahead();
  // A step that is read before the next is launched must not run ahead of a piece either.
  return most == 1 ? unread_.empty() : std::ranges::count_if(unread_, &Unread::is_step) < most;
}

void DecodeLoop::launch() {
  Unread unread{.sequences = std::vector<int64_t>(rows_.size(), kNone), .is_step = true};
  int64_t longest = 1;
  int64_t used = 1;  // rows up to the last one that the step computes
  for (size_t i = 0; i < rows_.size(); ++i) {
    Row& row = rows_[i];
    if (row.to_launch > 0) {
      unread.sequences[i] = row.sequence;
      --row.to_launch;
      longest = std::max(longest, ++row.length);
      used = static_cast<int64_t>(i) + 1;
    } else if (row.length > 0) {
      steps_.deactivate(static_cast<int64_t>(i));
      row.length = 0;
    }
  }
  steps_.launch(longest, used);
  waited_ += steps_.has_pieces() ? steps_.pieces().waiting() : 0;
  unread_.push_back(std::move(unread));
}

std::vector<SequenceToken> DecodeLoop::next() {
  if (wants_piece()) {
    launch_piece();
    between_steps_ = false;
    waited_ = 0;
  }
  while (wants_step() && has_room_for_step()) {
    launch();
    between_steps_ = true;
  }
  std::vector<SequenceToken> tokens;
  if (unread_.empty()) {
    return tokens;
  }
  auto [choices, prompt_logprobs] = steps_.read();
  const std::vector<int64_t> sequences = std::move(unread_.front().sequences);
  unread_.pop_front();
  for (size_t i = 0; i < rows_.size(); ++i) {
    Row& row = rows_[i];
    if (sequences[i] != kNone && sequences[i] == row.sequence) {
      tokens.push_back({.sequence = row.sequence,
                        .choice = std::move(choices[i]),
                        .prompt_logprobs = std::exchange(prompt_logprobs, {})});
      row.sequence = --row.to_read > 0 ? row.sequence : kNone;
    }
  }
  return tokens;
}

void DecodeLoop::run_to_the_end(std::vector<Sequence> sequences) {
  const auto take = [this] {
    for (const SequenceToken& token : next()) {
      if (token.choice.id < 0) {
        stop_poisoned(token.sequence);
      }
    }
  };
  for (size_t i = 0; i < sequences.size(); ++i) {
    while (free_rows() == 0) {
      take();
    }
    sequences[i].name = static_cast<int64_t>(i);
    enter(sequences[i]);
  }
  while (free_rows() < static_cast<int64_t>(rows_.size())) {
    take();
  }
}

void DecodeLoop::rehearse(std::span<const int64_t> ids, int64_t tokens) {
  const Sequence greedy{.name = 0, .ids = ids, .tokens = tokens};
  Sequence sampled = greedy, cut = greedy, scored = greedy, prompt_scored = greedy;
  sampled.draw.sampling.temperature = 1;
  cut.draw.sampling = {.temperature = 1, .top_k = 50, .top_p = 0.9, .min_p = 0.01, .seed = 1};
  scored.draw.scored = true;
  prompt_scored.tokens = 0;
  prompt_scored.prompt_scored = true;
  run_to_the_end(std::vector(rows_.size(), greedy));
  run_to_the_end({greedy, sampled, cut, scored, prompt_scored});
}

void DecodeLoop::discard_unread() {
  for (; !unread_.empty(); unread_.pop_front()) {
    steps_.read();
  }
}

}  // namespace warpfuse::host
