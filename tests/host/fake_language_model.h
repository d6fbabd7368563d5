#pragma once

#include <ATen/ops/zeros.h>

#include <string>

#include "runtime/decode/language_model.h"
#include "runtime/load/graph_passes.h"

// A model on the CPU whose logits are rows of `table`, where row t has its one at token t + 1, and
// the last one at 0. `methods` is TorchScript.
inline warpfuse::host::LanguageModel table_model(int64_t vocabulary, int64_t context,
                                                 const std::string& methods) {
  at::Tensor table = at::zeros({vocabulary, vocabulary});
  for (int64_t token = 0; token < vocabulary; ++token) {
    table[token][(token + 1) % vocabulary] = 1;
  }
  torch::jit::Module module("TableModel");
  module.register_buffer("table", table);
  module.define(methods);
  warpfuse::host::Bundle bundle{};
  bundle.model = "table";
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

// Says token t + 1 after token t. `decode` is the body of its method, where another is wanted.
inline warpfuse::host::LanguageModel counting_model(
    int64_t vocabulary, int64_t context,
    const std::string& decode = "return self.table[ids[:, 0]]") {
  return table_model(vocabulary, context,
                     "    def decode(self, ids, pos, cache):\n        " + decode + R"(
    def prefill(self, ids, pos, last, cache):
        return self.table[ids.gather(1, last.unsqueeze(1))[:, 0]]
    def forward(self, ids, pos, cache):
        return self.table[ids]
)");
}

// Says one more than the sum of all tokens that it sees in the cache, each plus one. A token `nan`
// is NaN there.
inline warpfuse::host::LanguageModel summing_model(int64_t vocabulary, int64_t context,
                                                   int64_t nan = -1) {
  const std::string nan_token = std::to_string(nan);
  return table_model(vocabulary, context,
                     R"(
    def forward(self, ids, pos, cache):
        seen = cache[0, 0, :, 0, :, 0]
        seen.scatter_(1, pos, (ids + 1).float().masked_fill(ids == )" +
                         nan_token + R"(, float("nan")))
        hidden = torch.arange(seen.size(1)) > pos.unsqueeze(2)
        sums = (seen.unsqueeze(1) * hidden.logical_not()).sum(2)
        return self.table[sums.nan_to_num().long() % self.table.size(0)] + (sums * 0).unsqueeze(2)
    def prefill(self, ids, pos, last, cache):
        logits = self.forward(ids, pos, cache)
        return logits.gather(1, last[:, None, None].expand(-1, -1, logits.size(2))).squeeze(1)
    def decode(self, ids, pos, cache):
        return self.forward(ids, pos, cache).squeeze(1)
)");
}
