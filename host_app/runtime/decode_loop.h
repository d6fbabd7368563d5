#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/cuda_runtime.h"
#include "runtime/language_model.h"
#include "runtime/sampling.h"
#include "runtime/softmax_call_counter.h"
#include "runtime/step_clock.h"
#include "runtime/step_state.h"

namespace warpfuse::host {

struct DecodeOptions {
  int64_t rows;  // sequences at a time
  Sampling sampling;
  bool graphs = true;                   // on a GPU
  std::optional<int64_t> top_logprobs;  // score each token, and so many of the most probable
};

// A sequence to continue. Its name selects its random stream, so that samples depend on neither row
// nor batch.
struct Sequence {
  int64_t name;  // at least 0, unique among the running ones
  std::span<const int64_t> ids;
  int64_t tokens;  // to sample at most; the last one needs no room in the context
};

struct SequenceToken {
  int64_t sequence;  // its name
  Choice choice;
};

// Decodes sequences in the rows of a cache, one step for all rows at a time. A step feeds each row
// its last token, samples the next one and leaves it for the following step, without the host:
// steps may be launched before the tokens of earlier ones are read.
//
// On a GPU a step is a CUDA graph, one for each bucket of the cache, captured when it is first
// needed; they share memory and read and write the same tensors, so that a change of bucket moves
// nothing. On the CPU the same step runs as it is.
class DecodeLoop {
 public:
  // `runtime` is needed on a GPU, and outlives the loop.
  DecodeLoop(const LanguageModel& model, const DecodeOptions& options, CudaRuntime* runtime);
  ~DecodeLoop();
  DecodeLoop(const DecodeLoop&) = delete;
  DecodeLoop& operator=(const DecodeLoop&) = delete;

  // Sequences that may be started together: neighbouring free rows.
  int64_t free_rows() const;
  // Starts sequences of one length; returns their first tokens.
  std::vector<SequenceToken> start(const std::vector<Sequence>& sequences);
  // Ends a sequence before its last token. Does nothing if it has ended.
  void stop(int64_t sequence);

  // Launches steps ahead, waits for the oldest unread one and returns the tokens of the sequences
  // that have not been stopped since its launch.
  std::vector<SequenceToken> next();
  // Waits for launched steps and discards their tokens.
  void discard_unread();

  // Why requested graphs are not used; empty if they are.
  const std::string& graph_failure() const { return graph_failure_; }
  // Kernels of the last launched step; 0 without a graph.
  int64_t kernels_per_step() const { return kernels_per_step_; }

 private:
  struct StepGraph {
    std::unique_ptr<CudaGraph> graph;
    SoftmaxCalls softmax_calls;
  };

  static constexpr int64_t kNone = -1;

  struct Row {
    int64_t sequence = kNone;
    int64_t length = 0;  // tokens in the cache, launched steps included; 0: inactive on the device
    int64_t to_launch = 0;  // steps
    int64_t to_read = 0;    // tokens
  };

  std::vector<Row>::const_iterator first_free() const;
  at::Tensor prefill(int64_t row, const std::vector<Sequence>& sequences) const;
  at::Tensor draw(const at::Tensor& logits, const at::Tensor& draws, const at::Tensor& names) const;
  // Computes a step; without `advancing` it may run any number of times.
  void step(int64_t slots, bool advancing);
  const StepGraph* graph_of(int64_t slots);
  // Steps that may be launched and not read.
  int64_t steps_ahead() const;
  bool wants_step() const;
  void deactivate(int64_t row);
  void launch();
  void wait_for(int64_t step);
  // The tokens of rows whose sequence is not kNone.
  std::vector<SequenceToken> tokens_of(const std::vector<int64_t>& sequences,
                                       const std::vector<int64_t>& ids,
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
  at::Tensor scores_;     // f32[B, columns], of the last step
  StepState state_;

  std::vector<Row> rows_;
  std::deque<std::vector<int64_t>> unread_;  // of each launched step: the sequences in its rows
  int64_t read_ = 0;                         // steps
  StepClock clock_;
  std::map<int64_t, StepGraph> graphs_;  // by slots
  std::string graph_failure_;
  int64_t kernels_per_step_ = 0;
};

}  // namespace warpfuse::host
