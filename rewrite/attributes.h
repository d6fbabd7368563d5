#pragma once

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <set>
#include <string>

namespace warpfuse::rewriting {

// The attributes of a module and of those in it, and which of them the program changes: an
// attribute is a constant only where no method changes one of its name.
class Attributes {
 public:
  explicit Attributes(const torch::jit::Module& module);

  const torch::jit::Module& module() const { return module_; }
  // Whether a method sets one of this name, or may change the sizes of its tensor.
  bool is_replaced(const std::string& name) const { return replaced_.contains(name); }
  // Whether a method writes to its tensor in place, which then keeps its dtype and sizes.
  bool is_written(const std::string& name) const { return written_.contains(name); }

 private:
  void collect(const std::shared_ptr<torch::jit::Graph>& graph);

  const torch::jit::Module& module_;
  std::set<std::string> replaced_, written_;
};

}  // namespace warpfuse::rewriting
