#pragma once

// A module and its rewritten copy: what became of its softmax calls, and what both give.

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <warpfuse/rewrite.h>

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.h"

struct Rewritten {
  torch::jit::Module original;
  torch::jit::Module module;
  warpfuse::RewriteReport report;

  explicit Rewritten(torch::jit::Module given, const warpfuse::RewriteOptions& options = {})
      : original(std::move(given)), module(original.clone()) {  // with graphs of its own
    original.eval();
    module.eval();
    report = warpfuse::rewrite(module, options);
  }

  const warpfuse::RewrittenSoftmax& only() const { return report.softmaxes.at(0); }
};

// Nothing where the call raises.
inline std::optional<at::Tensor> result_of(torch::jit::Module& module,
                                           const std::vector<c10::IValue>& arguments) {
  const torch::jit::GraphOptimizerEnabledGuard optimizer(false);
  try {
    return module.forward(arguments).toTensor();
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

struct Same {
  double relative = 1e-5, absolute = 1e-6;
  bool equal_nan = false;
  bool nan_becomes_zero = false;
};

// Both modules give the same, or both raise. Each call has inputs of its own, since a model may
// write to them.
inline void check_same(Rewritten& model, const std::function<std::vector<c10::IValue>()>& inputs,
                       const Same& same = {}) {
  const std::optional<at::Tensor> before = result_of(model.original, inputs());
  const std::optional<at::Tensor> after = result_of(model.module, inputs());
  REQUIRE(before.has_value() == after.has_value());
  if (before) {
    const at::Tensor wanted = same.nan_becomes_zero ? before->nan_to_num(0) : *before;
    CHECK(after->sizes() == wanted.sizes());
    CHECK(after->scalar_type() == wanted.scalar_type());
    CHECK(at::allclose(*after, wanted, same.relative, same.absolute, same.equal_nan));
  }
}

// TorchScript source of forward(self, <arguments>).
inline torch::jit::Module module_of_source(const std::string& arguments, const std::string& body) {
  torch::jit::Module module("Model");
  module.register_attribute("training", c10::BoolType::get(), false);
  std::string source = "def forward(self, ";
  source.append(arguments).append("):\n").append(body).append("\n");
  module.define(source);
  return module;
}

// A model whose code makes w from the scores s [B, 3, T, S] of q and k, which are float32 for
// certain. It may use visible [B, 1, T, S], addend [B, 1, T, S], pos [B, T], keys [1, S] and
// queries [T, 1].
inline torch::jit::Module attention_model(const std::string& code) {
  torch::jit::Module module("Model");
  at::manual_seed(5);
  module.register_attribute("training", c10::BoolType::get(), false);
  module.register_buffer("identity", at::eye(8));
  module.register_buffer("tril", at::ones({1, 1, 16, 16}, at::kBool).tril());
  module.register_buffer("triangle", at::ones({16, 16}).tril());
  module.register_buffer("slots", at::arange(16));
  module.register_buffer("bias", at::randn({1, 3, 1, 1}));
  module.register_buffer("shifted", at::randint(2, {2, 4, 4}, at::kFloat) * -100);
  module.register_buffer("padding", at::full({1, 1, 1, 1}, std::numeric_limits<float>::lowest()));
  std::string source =
      "def forward(self, q: Tensor, k: Tensor, visible: Tensor, addend: Tensor, pos: Tensor):\n"
      "  s = torch.matmul(torch.matmul(q, self.identity), k.transpose(2, 3))\n"
      "  keys = torch.arange(s.size(3)).unsqueeze(0)\n"
      "  queries = torch.arange(s.size(2)).unsqueeze(1)\n";
  source.append(code).append("  return w\n");
  module.define(source);
  return module;
}

// Its arguments. The last query of the boolean mask sees nothing.
inline std::vector<c10::IValue> attention_inputs(int64_t batch, int64_t queries, int64_t keys) {
  at::manual_seed(7);
  at::Tensor visible = at::rand({batch, 1, queries, keys}) < 0.6;
  visible.select(2, queries - 1).fill_(false);
  return {at::randn({batch, 3, queries, 8}), at::randn({batch, 3, keys, 8}), visible,
          at::randn({batch, 1, queries, keys}), at::randint(0, keys, {batch, queries}, at::kLong)};
}

inline warpfuse::RewriteOptions attention_options(bool keep_nan = false) {
  return {.methods = {},
          .arguments = {{"forward",
                         {{{"B", "3", "T", "D"}},
                          {{"B", "3", "S", "D"}},
                          {{"B", "1", "T", "S"}},
                          {{"B", "1", "T", "S"}},
                          {.sizes = {"B", "T"}, .dtype = at::kLong}}}},
          .device = std::nullopt,
          .keep_nan = keep_nan};
}
