#include "bench/profile.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>

#include "bench/benchmark.h"
#include "bench/matmul_precision.h"
#include "runtime/decode/cuda_runtime.h"
#include "runtime/errors.h"
#include "runtime/output.h"

namespace warpfuse::host::bench {
namespace {

// Whether the variant takes this shape; the call that finds out is the warm-up.
bool warm_up(const Variant& variant) {
  try {
    variant.call(0);
    return true;
  } catch (const c10::Error& error) {
    if (is_refusal(error.what_without_backtrace())) {
      return false;
    }
    throw;
  }
}

}  // namespace

void profile_rows(const std::vector<Case>& cases, const std::string& variant,
                  const Algorithms& algorithms, c10::Device device, CudaRuntime& runtime) {
  bool known = false;
  for (const Case& c : cases) {
    const MatmulPrecision precision(c);
    const std::vector<Variant> variants =
        c.op->variants(c, {.device = device, .sets = 1, .algorithms = algorithms.of(c)});
    const auto found = std::ranges::find(variants, variant, &Variant::name);
    if (found == variants.end()) {
      continue;
    }
    known = true;
    if (!warm_up(*found)) {
      continue;
    }
    const auto graph = runtime.capture([&] { found->call(0); });
    runtime.synchronize();
    runtime.start_profiler();
    found->call(0);
    runtime.synchronize();
    runtime.stop_profiler();
    Json line = key_of(c);
    line["variant"] = variant;
    line["kernels"] = graph->kernels();
    print("{}\n", line.dump());
    flush_output();
    runtime.release_memory();
  }
  if (!known) {
    fail(ExitCode::usage, "--profile: expected a variant of these rows, got '{}'", variant);
  }
}

}  // namespace warpfuse::host::bench
