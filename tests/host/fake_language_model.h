#pragma once

#include <ATen/ops/zeros.h>

#include <string>

#include "runtime/decode/language_model.h"
#include "runtime/load/graph_passes.h"

// A model on the CPU that says token t + 1 after token t, and 0 after its last one.
// `decode` is the body of its method, where another is wanted.
inline warpfuse::host::LanguageModel counting_model(
    int64_t vocabulary, int64_t context,
    const std::string& decode = "return self.table[ids[:, 0]]") {
  at::Tensor table = at::zeros({vocabulary, vocabulary});
  for (int64_t token = 0; token < vocabulary; ++token) {
    table[token][(token + 1) % vocabulary] = 1;
  }
  torch::jit::Module module("CountingModel");
  module.register_buffer("table", table);
  module.define("    def decode(self, ids, pos, cache):\n        " + decode + R"(
    def prefill(self, ids, pos, last, cache):
        return self.table[ids[:, -1]]
    def forward(self, ids, pos, cache):
        return self.table[ids]
)");
  warpfuse::host::Bundle bundle{};
  bundle.model = "counting";
  bundle.variant = "baseline";
  bundle.dtype = at::kFloat;
  bundle.language_model = {.context = context,
                           .layers = 1,
                           .heads = 1,
                           .head_dim = 2,
                           .vocab_size = vocabulary,
                           .end_tokens = {}};
  warpfuse::host::LanguageModel model(bundle, module, at::kCPU);
  warpfuse::host::keep_arguments(module);
  return model;
}
