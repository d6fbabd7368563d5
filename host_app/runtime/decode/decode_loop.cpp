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
    const auto& [name, ids, wanted] = sequences[i];
    rows_[first + i] = {.sequence = wanted > 1 ? name : kNone,
                        .length = static_cast<int64_t>(ids.size()),
                        .to_launch = wanted - 1,
                        .to_read = wanted - 1};
    tokens.push_back({.sequence = name, .choice = std::move(choices[i])});
  }
  return tokens;
}

void DecodeLoop::stop(int64_t sequence) {
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
  for (size_t i = 0; i < rows_.size(); ++i) {
    Row& row = rows_[i];
    if (row.to_launch > 0) {
      sequences[i] = row.sequence;
      --row.to_launch;
      longest = std::max(longest, ++row.length);
    } else if (row.length > 0) {
      steps_.deactivate(static_cast<int64_t>(i));
      row.length = 0;
    }
  }
  steps_.launch(longest);
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
