#include "runtime/decode/decode_loop.h"

#include <algorithm>
#include <utility>

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
    const auto& [name, ids, wanted, draw] = sequences[i];
    rows_[first + i] = {.sequence = wanted > 1 ? name : kNone,
                        .length = static_cast<int64_t>(ids.size()),
                        .to_launch = wanted - 1,
                        .to_read = wanted - 1};
    tokens.push_back({.sequence = name, .choice = std::move(choices[i])});
  }
  return tokens;
}

void DecodeLoop::enter(const Sequence& sequence) {
  const auto row = static_cast<size_t>(first_free() - rows_.begin());
  steps_.deactivate(static_cast<int64_t>(row));  // whoever had it before
  rows_[row] = {.sequence = sequence.name, .length = 0, .to_launch = 0, .to_read = 0};
  entering_.push_back({.sequence = sequence, .row = row});
}

std::optional<SequenceToken> DecodeLoop::start_piece(int64_t tokens) {
  Entering& front = entering_.front();
  const auto length = static_cast<int64_t>(front.sequence.ids.size());
  const int64_t end = std::min(front.taken + tokens, length);
  std::optional<Choice> first = steps_.start_piece(static_cast<int64_t>(front.row), front.sequence,
                                                   std::exchange(front.taken, end), end);
  rows_[front.row].length = end;
  if (!first) {
    return std::nullopt;
  }
  const int64_t name = front.sequence.name;
  const int64_t wanted = front.sequence.tokens - 1;
  rows_[front.row] = {.sequence = wanted > 0 ? name : kNone,
                      .length = length,
                      .to_launch = wanted,
                      .to_read = wanted};
  entering_.pop_front();
  return SequenceToken{.sequence = name, .choice = std::move(*first)};
}

void DecodeLoop::stop(int64_t sequence) {
  std::erase_if(entering_, [=](const Entering& each) { return each.sequence.name == sequence; });
  const auto row = std::ranges::find(rows_, sequence, &Row::sequence);
  if (row != rows_.end()) {
    row->sequence = kNone;
    row->to_launch = 0;
  }
}

bool DecodeLoop::wants_step() const {
  return std::ranges::any_of(rows_, [](const Row& row) { return row.to_launch > 0; });
}

void DecodeLoop::launch() {
  std::vector<int64_t> sequences(rows_.size(), kNone);
  int64_t longest = 1;
  int64_t used = 1;  // rows up to the last one that the step computes
  const auto is_entering = [this](size_t row) {
    return std::ranges::find(entering_, row, &Entering::row) != entering_.end();
  };
  for (size_t i = 0; i < rows_.size(); ++i) {
    Row& row = rows_[i];
    if (row.to_launch > 0) {
      sequences[i] = row.sequence;
      --row.to_launch;
      longest = std::max(longest, ++row.length);
      used = static_cast<int64_t>(i) + 1;
    } else if (is_entering(i)) {
      longest = std::max(longest, row.length + 1);
    } else if (row.length > 0) {
      steps_.deactivate(static_cast<int64_t>(i));
      row.length = 0;
    }
  }
  steps_.launch(longest, used);
  unread_.push_back(std::move(sequences));
}

std::vector<SequenceToken> DecodeLoop::next() {
  while (static_cast<int64_t>(unread_.size()) < steps_.max_ahead() && wants_step()) {
    launch();
  }
  std::vector<SequenceToken> tokens;
  if (unread_.empty()) {
    return tokens;
  }
  std::vector<Choice> choices = steps_.read();
  const std::vector<int64_t> sequences = std::move(unread_.front());
  unread_.pop_front();
  for (size_t i = 0; i < rows_.size(); ++i) {
    Row& row = rows_[i];
    if (sequences[i] != kNone && sequences[i] == row.sequence) {
      tokens.push_back({.sequence = row.sequence, .choice = std::move(choices[i])});
      row.sequence = --row.to_read > 0 ? row.sequence : kNone;
    }
  }
  return tokens;
}

void DecodeLoop::discard_unread() {
  for (; !unread_.empty(); unread_.pop_front()) {
    steps_.read();
  }
}

}  // namespace warpfuse::host
