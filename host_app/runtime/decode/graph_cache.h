#pragma once

#include <compare>
#include <map>

#include "runtime/decode/cuda_runtime.h"
#include "runtime/softmax_call_counter.h"

namespace warpfuse::host {

// Work that comes in a few sizes, as CUDA graphs, each captured when it is first needed.
// The graphs share memory, so that a graph leaves what is to outlive the next one in tensors that
// were made outside.
class GraphCache {
 public:
  enum class Kind { whole_step, step_to_logits, piece, scored_piece };
  struct Key {
    Kind kind;
    int64_t rows;
    int64_t tokens;  // per row
    int64_t slots;

    auto operator<=>(const Key&) const = default;
  };

  struct Work {
    Key key;
    std::function<void()> run;
    std::function<void()> warm_up;  // the same, but for what must not happen ahead of run()
  };

  // Null: without graphs, all work runs as it is. The runtime outlives the graphs.
  explicit GraphCache(CudaRuntime* runtime) : runtime_(runtime) {}

  // Returns the kernels; 0 without a graph.
  int64_t run(const Work& work);
  // Captures without running.
  void prepare(const Work& work) { find(work); }
  // Why a capture failed; empty if none has. There are no graphs from then on.
  const std::string& failure() const { return failure_; }

 private:
  struct Captured {
    std::unique_ptr<CudaGraph> graph;
    SoftmaxCalls softmax_calls;
  };

  const Captured* find(const Work& work);

  CudaRuntime* runtime_;
  std::map<Key, Captured> graphs_;
  const CudaGraph* first_ = nullptr;  // whose memory the others share
  std::string failure_;
};

}  // namespace warpfuse::host
