#pragma once

#include "runtime/decode/decode_steps.h"

namespace warpfuse::host {

struct SequenceToken {
  int64_t sequence;  // its name
  Choice choice;
  std::vector<double> prompt_logprobs = {};  // beside the first, where Sequence::prompt_scored
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
  // Puts a sequence into a free row, which next() takes it into by pieces; its ids must live so
  // long. One that wants no tokens is there to be scored: its one SequenceToken has no choice.
  void enter(const Sequence& sequence);
  // Ends a sequence before its last token. Does nothing if it has ended.
  void stop(int64_t sequence);

  // The same of a sequence that gave NaN, which must not outlive it in the caches.
  void stop_poisoned(int64_t sequence);

  // Launches steps ahead, and between two of them a piece of a prompt; waits for the oldest unread
  // one and returns the tokens of the sequences that have not been stopped since its launch.
  std::vector<SequenceToken> next();
  // Waits for launched steps and discards their tokens.
  void discard_unread();

  const DecodeSteps& steps() const { return steps_; }
  // Captures all graphs ahead of need, before the first sequence.
  void prepare() { steps_.prepare(); }
  // Runs sequences of these tokens, as many as there are rows, and of each kind that
  // DecodeOptions::mixed allows: what is loaded and allocated for the first ones takes longer than
  // they do. Before the first sequence.
  void rehearse(std::span<const int64_t> ids, int64_t tokens);

 private:
  static constexpr int64_t kNone = -1;

  struct Row {
    int64_t sequence = kNone;
    int64_t length = 0;     // tokens, launched steps included; 0: inactive on the device
    int64_t to_launch = 0;  // steps
    int64_t to_read = 0;    // tokens
  };

  struct Unread {
    std::vector<int64_t> sequences;  // in the rows
    bool is_step;                    // else a piece
  };

  std::vector<Row>::const_iterator first_free() const;
  bool wants_step() const;
  bool wants_piece();
  bool has_room_for_step();
  void launch();
  void launch_piece();
  void run_to_the_end(std::vector<Sequence> sequences);

  DecodeSteps steps_;
  std::vector<Row> rows_;
  std::deque<Unread> unread_;
  int64_t waited_ = 0;         // steps times prompts that waited meanwhile, since the last piece
  bool between_steps_ = true;  // no piece was launched since the last step
};

}  // namespace warpfuse::host
