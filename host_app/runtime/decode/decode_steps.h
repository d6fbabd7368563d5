#pragma once

#include <set>

#include "runtime/decode/prompt_pieces.h"
#include "runtime/decode/step_memory.h"

namespace warpfuse::host {

struct DecodeOptions {
  int64_t rows;  // sequences at a time
  Sampling sampling;
  bool graphs = true;                   // on a GPU
  std::optional<int64_t> top_logprobs;  // score each token, and so many of the most probable
  // Sequences bring DrawRules of their own, and may enter by pieces. A graph then ends at the
  // logits, and the tokens are drawn behind it, unless all rows are greedy.
  bool mixed = false;
  int64_t max_length = 0;  // tokens of a sequence that need slots, on a CPU; 0: the context
};

// Decode steps on a device, for all rows of a cache at a time. A step feeds each active row its
// last token, samples the next one and leaves it for the following step, without the host: steps
// may be launched before the tokens of earlier ones are read.
//
// On a GPU a step is a CUDA graph, one for each bucket of the cache, captured when it is first
// needed; they share memory and read and write the same tensors, so that a change of bucket moves
// nothing. On the CPU the same step runs as it is.
class DecodeSteps {
 public:
  // `runtime` is needed on a GPU, and outlives the steps.
  DecodeSteps(const LanguageModel& model, const DecodeOptions& options, CudaRuntime* runtime);
  ~DecodeSteps();
  DecodeSteps(const DecodeSteps&) = delete;
  DecodeSteps& operator=(const DecodeSteps&) = delete;

  // Puts sequences of one length into the rows from `row` on, which become active; waits for their
  // first tokens and returns them.
  std::vector<Choice> start(int64_t row, const std::vector<Sequence>& sequences);
  // Excludes the row from later steps until it is started again.
  void deactivate(int64_t row) { idle_.insert(row); }
  // Forgets the keys and values of a row whose sequence gave NaN: a NaN that nobody sees is still
  // multiplied by zero.
  void clear(int64_t row);

  // The prompts that enter by pieces, where DecodeOptions::mixed.
  PromptPieces& pieces() { return *pieces_; }
  bool has_pieces() const { return pieces_ != nullptr && pieces_->waiting() > 0; }
  // Launches a piece and returns the prompts that are in with it, whose rows become active if they
  // want tokens. Unless there are none, a read() in the order of launches gives the first tokens.
  std::vector<PromptPieces::Prompt> launch_piece();
  // Captures all graphs ahead of need, before the first sequence.
  void prepare();

  // Launches a step; the longest row has `length` tokens with this step's, at most the cache's. On
  // the CPU only the first `rows` rows are computed. At most max_ahead() steps may be launched and
  // not read.
  void launch(int64_t length, int64_t rows);
  // What a step or a piece has given.
  struct Result {
    std::vector<Choice> choices;               // by row; of inactive rows they have no meaning
    std::vector<double> prompt_logprobs = {};  // of a piece that ended a Sequence::prompt_scored
  };
  // Waits for the oldest unread step or piece that gives tokens.
  Result read();
  int64_t max_ahead();

  // Why requested graphs are not used; empty if they are.
  const std::string& graph_failure() const { return graphs_.failure(); }
  // Kernels of the last launched step; 0 without a graph.
  int64_t kernels_per_step() const { return kernels_per_step_; }

 private:
  struct Unread {
    bool scored = false;
    at::Tensor prompt_scores = {};
  };

  at::Tensor prefill(int64_t row, const std::vector<Sequence>& sequences) const;
  // Draws first tokens, activates the rows, and publishes the tokens as those of a step.
  at::Tensor activate(const std::vector<int64_t>& rows, const std::vector<Sequence>& sequences,
                      const at::Tensor& logits, bool publish);
  void apply_idle();
  const RowDraws& draws();
  // A step of rows that are drawn alike, as a whole and without its end; a step up to its logits.
  GraphCache::Work whole_step(int64_t slots, int64_t rows);
  at::Tensor next_tokens(int64_t slots, int64_t rows);
  GraphCache::Work step_to_logits(int64_t slots, int64_t rows);
  // Of the first rows of the logits.
  at::Tensor draw(const RowDraws& how, const at::Tensor& logits);
  at::Tensor decode(int64_t slots, int64_t rows) const;

  LanguageModel model_;
  DecodeOptions options_;
  int64_t top_logprobs_;  // that are counted of each token; no more than there are
  CudaRuntime* runtime_;
  GraphCache graphs_;
  std::unique_ptr<PromptPieces> pieces_;  // where sequences are mixed
  Cache cache_;
  StepMemory memory_;
  at::Tensor logits_;    // [B, V], of the last step that was run to its logits
  at::Tensor no_draws_;  // i64[1], zero
  at::Tensor scores_;    // f32[B, columns], of the last step, and of the last piece
  std::vector<std::optional<DrawRules>> rules_;  // by row, of those in use
  std::optional<RowDraws> row_draws_;            // of these, once needed
  RowDraws greedy_;
  std::set<int64_t> idle_;  // rows that are to be deactivated

  std::deque<Unread> unread_;
  int64_t kernels_per_step_ = 0;
};

}  // namespace warpfuse::host
