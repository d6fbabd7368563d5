#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/decode/cuda_runtime.h"
#include "runtime/decode/language_model.h"
#include "runtime/decode/sampling.h"
#include "runtime/decode/step_clock.h"
#include "runtime/decode/step_state.h"
#include "runtime/softmax_call_counter.h"

namespace warpfuse::host {

struct DecodeOptions {
  int64_t rows;  // sequences at a time
  Sampling sampling;
  bool graphs = true;                   // on a GPU
  std::optional<int64_t> top_logprobs;  // score each token, and so many of the most probable
  // Sequences bring DrawRules of their own. Graphs then end at the logits, and the tokens are drawn
  // behind them.
  bool mixed = false;
};

// How the tokens of one sequence among others are drawn.
struct DrawRules {
  Sampling sampling;
  int64_t stream = 0;   // its random stream, in place of the sequence's name
  bool scored = false;  // where DecodeOptions::top_logprobs is given
};

// A sequence to continue. Its name selects its random stream, so that samples depend on neither row
// nor batch.
struct Sequence {
  int64_t name;  // at least 0, unique among the running ones
  std::span<const int64_t> ids;
  int64_t tokens;       // to sample at most; the last one needs no room in the context
  DrawRules draw = {};  // where DecodeOptions::mixed
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

  // Puts sequences of one length into the rows from `row` on, which become active; returns their
  // first tokens.
  std::vector<Choice> start(int64_t row, const std::vector<Sequence>& sequences);
  // The same for one sequence, in pieces between which steps may be launched: takes its tokens
  // [begin, end) in. The last piece activates the row and returns its first token.
  std::optional<Choice> start_piece(int64_t row, const Sequence& sequence, int64_t begin,
                                    int64_t end);
  // Excludes the row from later steps until it is started again.
  void deactivate(int64_t row);

  // Starts a step; the longest row has `length` tokens with this step's (one that is taken in by
  // pieces: a token more than it has), at most the context. On the CPU only the first `rows` rows
  // are computed. At most max_ahead() steps may be launched and not read.
  void launch(int64_t length, int64_t rows);
  // Waits for the oldest unread step and returns its tokens, by row. Tokens of inactive rows have
  // no meaning.
  std::vector<Choice> read();
  int64_t max_ahead() const;

  // Why requested graphs are not used; empty if they are.
  const std::string& graph_failure() const { return graph_failure_; }
  // Kernels of the last launched step; 0 without a graph.
  int64_t kernels_per_step() const { return kernels_per_step_; }

 private:
  struct StepGraph {
    std::unique_ptr<CudaGraph> graph;
    SoftmaxCalls softmax_calls;
  };

  at::Tensor prefill(int64_t row, const std::vector<Sequence>& sequences) const;
  at::Tensor prefill_piece(int64_t row, const at::Tensor& ids, int64_t begin, int64_t end) const;
  std::vector<Choice> activate(int64_t row, const std::vector<Sequence>& sequences,
                               const at::Tensor& logits);
  at::Tensor sample(const Sampling& how, const at::Tensor& logits, const at::Tensor& draws,
                    const at::Tensor& names) const;
  // The parts of a step, for the first rows.
  at::Tensor decode(int64_t slots, int64_t rows) const;
  at::Tensor draw(const at::Tensor& logits);
  at::Tensor draw_and_score(const at::Tensor& logits);
  at::Tensor next_tokens(int64_t slots, int64_t rows);
  void advance_by(const at::Tensor& tokens);
  void group_draws();
  bool scores_wanted() const;
  // Computes a step; without `advancing` it may run any number of times.
  void step(int64_t slots, int64_t rows, bool advancing);
  const StepGraph* graph_of(int64_t slots);
  void wait_for(int64_t step);
  std::vector<Choice> choices_of(const std::vector<int64_t>& tokens,
                                 const at::Tensor& scores) const;

  LanguageModel model_;
  DecodeOptions options_;
  CudaRuntime* runtime_;
  Cache cache_;
  at::Tensor ids_;        // i64[B, 1]
  at::Tensor positions_;  // i64[B, 1]
  at::Tensor draws_;      // i64[B]
  at::Tensor names_;      // i64[B]
  at::Tensor active_;     // i64[B]
  at::Tensor count_;      // i64[1]
  at::Tensor ring_;       // i64[kRingSteps, B], memory of the host
  at::Tensor published_;  // i64[1], memory of the host
  at::Tensor logits_;     // [B, V], of the last replayed graph, where sequences are mixed
  at::Tensor scores_;     // f32[B, columns], of the last step
  StepState state_;
  std::vector<std::optional<DrawRules>> draw_of_;             // by row, of active ones
  std::vector<std::pair<Sampling, at::Tensor>> draw_groups_;  // rows that sample alike; made anew
                                                              // when empty

  int64_t read_ = 0;  // steps
  StepClock clock_;
  std::map<int64_t, StepGraph> graphs_;  // by slots
  std::string graph_failure_;
  int64_t kernels_per_step_ = 0;
};

}  // namespace warpfuse::host
