#include "common/parallel_rows.h"
#include "common/registration.h"
#include "sample_tokens/sample_tokens.h"
#include "sample_tokens/sample_tokens_kernel_cpu.h"

namespace warpfuse {
namespace {

Counter calls("sample_tokens.cpu");

at::Tensor sample_tokens_on_cpu(const at::Tensor& logits, const at::Tensor& step, int64_t seed,
                                double temperature, int64_t top_k, double top_p, double min_p,
                                const std::optional<at::Tensor>& rows) {
  const SampleInputs inputs{logits, step, seed, temperature, top_k, top_p, min_p, rows};
  return run_sample_tokens(calls, inputs, [](const SampleTokensArguments& arguments) {
    parallel_rows(arguments.rows, arguments.columns,
                  [&](int64_t begin, int64_t end) { sample_tokens_cpu(arguments, begin, end); });
  });
}

WARPFUSE_LIBRARY_IMPL(CPU, m) { m.impl("sample_tokens", sample_tokens_on_cpu); }

}  // namespace
}  // namespace warpfuse
