#pragma once

#include <chrono>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/decode/language_model.h"
#include "runtime/decode/sampling.h"

// Stands for the decode loop where the server is built without libtorch's code.
namespace warpfuse::host {

struct SequenceToken {
  int64_t sequence;
  Choice choice;
  std::vector<double> prompt_logprobs = {};
};

// Says token t + 1 after token t, of 256.
class DecodeLoop {
 public:
  explicit DecodeLoop(int64_t rows) : rows_(rows) {}

  int64_t free_rows() const { return rows_ - static_cast<int64_t>(running_.size()); }
  std::vector<SequenceToken> start(const std::vector<Sequence>& sequences) {
    for (const Sequence& sequence : sequences) {
      enter(sequence);
    }
    return next();
  }
  void enter(const Sequence& sequence) {
    running_[sequence.name] = {.last = sequence.ids.back(),
                               .left = sequence.tokens,
                               .prompt_logprobs = std::vector<double>(
                                   sequence.prompt_scored ? sequence.ids.size() - 1 : 0)};
  }
  void stop(int64_t sequence) { running_.erase(sequence); }
  void stop_poisoned(int64_t sequence) { stop(sequence); }
  std::vector<SequenceToken> next() {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    std::vector<SequenceToken> tokens;
    for (auto& [name, row] : running_) {
      row.last = (row.last + 1) % 256;
      --row.left;
      tokens.push_back({.sequence = name,
                        .choice = {.id = row.last, .logprob = -1, .top_logprobs = {}},
                        .prompt_logprobs = std::exchange(row.prompt_logprobs, {})});
    }
    std::erase_if(running_, [](const auto& each) { return each.second.left <= 0; });
    return tokens;
  }
  void discard_unread() {}

 private:
  struct Row {
    int64_t last;
    int64_t left;
    std::vector<double> prompt_logprobs;
  };

  int64_t rows_;
  std::map<int64_t, Row> running_;
};

}  // namespace warpfuse::host
