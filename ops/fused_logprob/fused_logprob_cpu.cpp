#include <vector>

#include "common/parallel_rows.h"
#include "common/registration.h"
#include "fused_logprob/fused_logprob_backend.h"
#include "fused_logprob/fused_logprob_kernel_cpu.h"

namespace warpfuse {
namespace {

Counter rows_branch("cpu.logprob_rows");
Counter parts_branch("cpu.logprob_parts");

// Parts of a row, where rows are too few for the threads; else 0.
int64_t parts_per_row(const LogitRows& layout) {
  const bool few = layout.rows < at::get_num_threads() && layout.columns >= 4 * kElementsPerThread;
  (few ? parts_branch : rows_branch).add();
  return few ? (layout.columns + kLogprobPartColumns - 1) / kLogprobPartColumns : 0;
}

struct Cpu {
  static inline Counter calls[] = {Counter("fused_logprob.cpu"), Counter("fused_logprob_lse.cpu"),
                                   Counter("fused_logprob_entropy.cpu")};
  static inline Counter backward_calls{"fused_logprob_backward.cpu"};

  static void forward(const char*, c10::Device, const FusedLogprobArguments& arguments) {
    const auto& [rows, columns, inner, outer_stride, inner_stride] = arguments.layout;
    if (const int64_t count = parts_per_row(arguments.layout)) {
      std::vector<LogprobPart> parts(rows * count);
      const LogprobInParts<FusedLogprobArguments> in{arguments, count, parts.data()};
      parallel_rows(rows * count, kLogprobPartColumns,
                    [&](int64_t begin, int64_t end) { fused_logprob_parts_cpu(in, begin, end); });
      fused_logprob_join_cpu(in, 0, rows);
      return;
    }
    // Ignored rows take no time, and often lie together.
    parallel_uneven_rows(rows, columns, [&](int64_t begin, int64_t end) {
      fused_logprob_rows_cpu(arguments, begin, end);
    });
  }

  static void backward(const char*, c10::Device, const FusedLogprobBackwardArguments& arguments) {
    const auto& [rows, columns, inner, outer_stride, inner_stride] = arguments.layout;
    if (const int64_t count = parts_per_row(arguments.layout)) {
      const LogprobInParts<FusedLogprobBackwardArguments> in{arguments, count, nullptr};
      parallel_rows(rows * count, kLogprobPartColumns, [&](int64_t begin, int64_t end) {
        fused_logprob_backward_parts_cpu(in, begin, end);
      });
      return;
    }
    parallel_uneven_rows(rows, columns, [&](int64_t begin, int64_t end) {
      fused_logprob_backward_rows_cpu(arguments, begin, end);
    });
  }
};

WARPFUSE_LIBRARY_IMPL(CPU, m) { FusedLogprob<Cpu>::register_in(m); }

}  // namespace
}  // namespace warpfuse
