#pragma once

#include <deque>

#include "runtime/decode/graph_cache.h"
#include "runtime/decode/language_model.h"
#include "runtime/decode/sampling.h"

namespace warpfuse::host {

// Takes prompts in by pieces of at most kPieceTokens tokens, between which steps may run: into keys
// and values of its own, so that a prompt that is half in and steps do not meet, and from there
// into the rows of a cache.
//
// On a GPU a piece is a CUDA graph. Few lengths occur, because pieces are padded: what is written
// for a token past the end is written again before any token sees it. Short prompts that wait
// together are taken in together.
class PromptPieces {
 public:
  static constexpr int64_t kPieceTokens = 128;

  // A prompt and the row that it is for.
  struct Prompt {
    int64_t row;
    Sequence sequence;
    int64_t taken = 0;  // tokens
  };
  // Prompts that are in, and the logits [B, V] after them.
  struct Done {
    std::vector<Prompt> prompts;
    at::Tensor logits;         // until the next piece
    at::Tensor prompt_scores;  // f32, in memory of the host; where Sequence::prompt_scored, which
                               // is alone. They are there when what is launched next is.
  };

  // Without graphs, as on a CPU, nothing is padded.
  PromptPieces(const LanguageModel& model, GraphCache& graphs, bool with_graphs);
  // Of the keys and values.
  static int64_t cache_bytes(const LanguageModel& model);

  void add(int64_t row, const Sequence& sequence) { waiting_.push_back({row, sequence}); }
  void remove(int64_t sequence);
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  // Whether a prompt that may still come could be in the next piece, too.
  bool has_room() const;

  // Launches the next piece, and the copies of prompts that are in with it.
  Done next(const Cache& cache);
  // Captures all graphs. No prompt is on its way in.
  void prepare();
  // Forgets what prompts have left behind, before the next one.
  void clear() { may_hold_nan_ = true; }

 private:
  // What a graph is captured for.
  struct Shape {
    int64_t prompts;
    int64_t tokens;  // of each
    int64_t slots;
    bool scored;
  };

  int64_t padded(int64_t tokens) const;
  size_t most_together() const;
  size_t together() const;
  Shape fill_input(size_t prompts);
  void compute(const Shape& shape);
  GraphCache::Work work_of(const Shape& shape);
  Cache own_cache(const Shape& shape) const;

  LanguageModel model_;
  GraphCache& graphs_;
  bool with_graphs_;
  Cache one_;      // of one prompt, which may be long
  Cache several_;  // of short ones
  at::Tensor
      input_;  // i64: ids, positions and targets of all tokens, the last tokens' places, rows
  at::Tensor logits_;          // [B, V], of the last piece
  at::Tensor prompt_scores_;   // f32[context], of the prompt that is on its way in
  bool may_hold_nan_ = false;  // the keys and values
  std::deque<Prompt> waiting_;
};

}  // namespace warpfuse::host
