#include "common/cuda_launch.h"
#include "common/registration.h"
#include "sample_tokens/sample_tokens.h"
#include "sample_tokens/sample_tokens_kernel.h"

namespace warpfuse {
namespace {

Counter calls("sample_tokens.cuda");

at::Tensor sample_tokens_on_cuda(const at::Tensor& logits, const at::Tensor& step, int64_t seed,
                                 double temperature, int64_t top_k, double top_p, double min_p,
                                 const std::optional<at::Tensor>& rows) {
  const SampleInputs inputs{logits, step, seed, temperature, top_k, top_p, min_p, rows};
  return run_sample_tokens(calls, inputs, [&](const SampleTokensArguments& arguments) {
    launch_on("sample_tokens", logits.device(), [&](cudaStream_t stream, Workspace&) {
      return sample_tokens_cuda(arguments, stream);
    });
  });
}

WARPFUSE_LIBRARY_IMPL(CUDA, m) { m.impl("sample_tokens", sample_tokens_on_cuda); }

}  // namespace
}  // namespace warpfuse
