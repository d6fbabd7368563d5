// A rewritten chain on a GPU: the same graph runs eagerly and in a CUDA graph.

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>

#include "rewrite/rewritten.h"
#include "support/captured.h"
#include "support/devices.h"

WARPFUSE_GPU_TEST("a rewritten causal chain in a CUDA graph", "[rewrite]") {
  Rewritten model(
      module_of_source("q: Tensor, k: Tensor",
                       "  s = torch.matmul(q, k.transpose(2, 3)) * 0.5\n"
                       "  keys = torch.arange(s.size(3), device=q.device).unsqueeze(0)\n"
                       "  queries = torch.arange(s.size(2), device=q.device).unsqueeze(1)\n"
                       "  return s.masked_fill(keys > queries, float('-inf')).softmax(-1)"),
      {.arguments = {{"forward", {{{"B", "3", "T", "D"}}, {{"B", "3", "T", "D"}}}}}});
  REQUIRE(model.only().operator_after == "warpfuse::scaled_masked_softmax");
  REQUIRE(model.only().mask == "causal");
  const torch::jit::GraphOptimizerEnabledGuard optimizer(false);
  const at::Tensor q = at::randn({2, 3, 65, 8}, device), k = at::randn({2, 3, 65, 8}, device);
  at::cuda::getCurrentCUDAStream().synchronize();
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  Captured captured([&] { return model.module.forward({q, k}).toTensor(); });
  for (int replay = 0; replay < 3; ++replay) {
    q.copy_(at::randn({2, 3, 65, 8}, device));
    const at::Tensor& output = captured.replay();
    for (torch::jit::Module* eager : {&model.original, &model.module}) {
      CHECK(at::allclose(output, result_of(*eager, {q, k}).value(), 1e-5, 1e-6));
    }
  }
}
