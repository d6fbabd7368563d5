#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "runtime/decode/decode_steps.h"

namespace warpfuse::host {

struct SequenceToken {
  int64_t sequence;  // its name
  Choice choice;
};

// Continues sequences, each in a row of its own, and knows which token belongs to which.
class DecodeLoop {
 public:
  // `runtime` is needed on a GPU, and outlives the loop.
  DecodeLoop(const LanguageModel& model, const DecodeOptions& options, CudaRuntime* runtime)
      : steps_(model, options, runtime), rows_(options.rows) {}

  // Sequences that may be started together: neighbouring free rows.
  int64_t free_rows() const;
  // Starts sequences of one length; returns their first tokens.
  std::vector<SequenceToken> start(const std::vector<Sequence>& sequences);
  // Puts a sequence into a free row, into which start_piece() then takes it; its ids must live so
  // long.
  void enter(const Sequence& sequence);
  // Takes the next piece of at most `tokens` tokens of the sequence that entered first, and is not
  // in yet: its first token, once it is. Steps may be launched between pieces.
  std::optional<SequenceToken> start_piece(int64_t tokens);
  bool has_pieces() const { return !entering_.empty(); }
  // Ends a sequence before its last token. Does nothing if it has ended.
  void stop(int64_t sequence);

  // Launches steps ahead, waits for the oldest unread one and returns the tokens of the sequences
  // that have not been stopped since its launch.
  std::vector<SequenceToken> next();
  // Waits for launched steps and discards their tokens.
  void discard_unread();

  const DecodeSteps& steps() const { return steps_; }

 private:
  static constexpr int64_t kNone = -1;

  struct Row {
    int64_t sequence = kNone;
    int64_t length = 0;     // tokens, launched steps included; 0: inactive on the device
    int64_t to_launch = 0;  // steps
    int64_t to_read = 0;    // tokens
  };

  std::vector<Row>::const_iterator first_free() const;
  bool wants_step() const;
  void launch();

  struct Entering {
    Sequence sequence;
    size_t row;
    int64_t taken = 0;
  };

  DecodeSteps steps_;
  std::deque<Entering> entering_;
  std::vector<Row> rows_;
  std::deque<std::vector<int64_t>> unread_;  // of each unread step: the sequences in its rows
};

}  // namespace warpfuse::host
