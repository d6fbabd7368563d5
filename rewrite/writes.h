#pragma once

#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <unordered_set>

namespace warpfuse::rewriting {

// Which tensors of a graph are written to in place. Arguments and attributes share no memory with
// one another, which libtorch's alias analysis alone does not assume.
class Writes {
 public:
  explicit Writes(const std::shared_ptr<torch::jit::Graph>& graph);

  bool reach(const torch::jit::Value* value) const;
  // Whether one of the writes may change the sizes of its tensor.
  bool may_resize() const { return may_resize_; }

  // `after` takes the place of `before`, a new value with the same writes to it.
  void replace(torch::jit::Value* before, torch::jit::Value* after);

 private:
  void collect(torch::jit::Block* block);
  // The tensor whose memory a view shows.
  const torch::jit::Value* root_of(const torch::jit::Value* value) const;

  torch::jit::AliasDb aliases_;
  std::unordered_set<const torch::jit::Value*> written_roots_;
  bool may_resize_ = false;
};

}  // namespace warpfuse::rewriting
