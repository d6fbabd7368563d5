#include <cmath>
#include <vector>

#include "common/parallel_rows.h"
#include "common/registration.h"
#include "rowwise/cpu/limits.h"
#include "softmax/softmax.h"
#include "softmax/softmax_kernel_cpu.h"

namespace warpfuse {
namespace {

Counter softmax_calls("softmax.cpu");
Counter log_softmax_calls("log_softmax.cpu");
Counter softmax_backward_calls("softmax_backward.cpu");
Counter log_softmax_backward_calls("log_softmax_backward.cpu");
Counter algorithm_calls("softmax_algorithm.cpu");
Counter rows_branch("cpu.rows");
Counter parts_branch("cpu.parts");
Counter column_branch("cpu.column");
Counter naive_branch("cpu.naive");
Counter streamed_results("streamed.softmax");

// --- rows in parts ----------------------------------------------------------------------------

// Columns of a part: little enough to be read twice from a first-level cache.
constexpr int64_t kPartColumns = 8192;

// Elements of the rows that are in work at a time.
constexpr int64_t kGroupElements = int64_t{1024} * 1024;

// Rows of a task along another dimension: whole groups of four vectors of any dtype.
constexpr int64_t kColumnGranule = 128;

// Rows that no cache keeps, and rows that are too few for the threads, are cut into parts.
bool wants_parts(const RowLayout& layout) {
  return layout.inner == 1 &&
         (layout.columns * int64_t{sizeof(float)} > kCachedBytes ||
          (layout.rows() < at::get_num_threads() && layout.columns >= 4 * kElementsPerThread));
}

// A row's maximum, and the sum of exp(x - max) over it, from those of its parts.
RowPart whole_row(const SoftmaxArguments&, const RowPart* parts, int64_t count) {
  RowPart row{parts[0].max, 0.0};
  for (int64_t i = 1; i < count; ++i) {
    row.max = std::max(row.max, parts[i].max);
  }
  for (int64_t i = 0; i < count; ++i) {
    row.sum += parts[i].sum * std::exp(parts[i].max - row.max);
  }
  return row;
}

RowPart whole_row(const SoftmaxBackwardArguments&, const RowPart* parts, int64_t count) {
  RowPart row;
  for (int64_t i = 0; i < count; ++i) {
    row.sum += parts[i].sum;
  }
  return row;
}

// reduce fills in.parts, then results takes in.rows. A group of rows at a time, little enough for
// results to find in a last-level cache what reduce has read.
template <typename Arguments, typename Kernel>
void run_in_parts(const Arguments& arguments, const Kernel& reduce, const Kernel& results) {
  const int64_t rows = arguments.layout.rows();
  const int64_t columns = arguments.layout.columns;
  const int64_t parts_per_row = (columns + kPartColumns - 1) / kPartColumns;
  const int64_t group = std::clamp<int64_t>(kGroupElements / columns, 1, rows);
  std::vector<RowPart> parts(group * parts_per_row);
  std::vector<RowPart> whole(group);
  InParts<Arguments> in{arguments, 0, kPartColumns, parts_per_row, parts.data(), whole.data()};
  for (; in.first_row < rows; in.first_row += group) {
    const int64_t group_rows = std::min(group, rows - in.first_row);
    const auto on_parts = [&](const Kernel& kernel) {
      parallel_rows(group_rows * parts_per_row, kPartColumns,
                    [&](int64_t begin, int64_t end) { kernel(in, begin, end); });
    };
    on_parts(reduce);
    for (int64_t row = 0; row < group_rows; ++row) {
      whole[row] = whole_row(arguments, &parts[row * parts_per_row], parts_per_row);
    }
    on_parts(results);
  }
}

// --- launches ---------------------------------------------------------------------------------

// Whether the kernels stream the result: what they call a row lies in one piece.
bool streams(const RowLayout& layout, DType dtype) {
  const int64_t row = layout.inner == 1 ? layout.columns : layout.inner;
  return is_streamed(layout.rows() * layout.columns / row, row * element_bytes(dtype));
}

// `kernel` on rows, or `reduce` and `results` on their parts.
template <typename Arguments, typename Kernel, typename PartKernel>
void run(const Arguments& arguments, const Kernel& kernel, const PartKernel& reduce,
         const PartKernel& results) {
  const RowLayout& layout = arguments.layout;
  if (streams(layout, arguments.dtype)) {
    streamed_results.add();
  }
  if (wants_parts(layout)) {
    parts_branch.add();
    run_in_parts(arguments, reduce, results);
    return;
  }
  (layout.inner == 1 ? rows_branch : column_branch).add();
  parallel_rows(
      layout.rows(), layout.columns,
      [&](int64_t begin, int64_t end) { kernel(arguments, begin, end); },
      layout.inner == 1 ? 1 : kColumnGranule);
}

void run_forward(const SoftmaxArguments& arguments) {
  run(arguments, softmax_rows_cpu, softmax_parts_cpu, softmax_part_results_cpu);
}

void run_backward(const SoftmaxBackwardArguments& arguments) {
  run(arguments, softmax_backward_rows_cpu, softmax_backward_parts_cpu,
      softmax_backward_part_results_cpu);
}

// --- operators --------------------------------------------------------------------------------

at::Tensor softmax_cpu(const at::Tensor& self, int64_t dim, std::optional<at::ScalarType> dtype) {
  return run_softmax("softmax", softmax_calls, self, dim, dtype, false, run_forward);
}

at::Tensor log_softmax_cpu(const at::Tensor& self, int64_t dim,
                           std::optional<at::ScalarType> dtype) {
  return run_softmax("log_softmax", log_softmax_calls, self, dim, dtype, true, run_forward);
}

at::Tensor softmax_backward_cpu(const at::Tensor& grad_output, const at::Tensor& output,
                                int64_t dim) {
  return run_softmax_backward("_softmax_backward", softmax_backward_calls, grad_output, output, dim,
                              false, run_backward);
}

at::Tensor log_softmax_backward_cpu(const at::Tensor& grad_output, const at::Tensor& output,
                                    int64_t dim) {
  return run_softmax_backward("_log_softmax_backward", log_softmax_backward_calls, grad_output,
                              output, dim, true, run_backward);
}

at::Tensor softmax_algorithm_cpu(const at::Tensor& self, int64_t dim, c10::string_view algorithm,
                                 bool log) {
  constexpr const char* kOp = "_softmax_algorithm";
  if (algorithm == "vector") {
    return run_softmax(kOp, algorithm_calls, self, dim, std::nullopt, log, run_forward);
  }
  WARPFUSE_CHECK(algorithm == "naive", kOp, "algorithm", "\"naive\" or \"vector\" on the CPU", '"',
                 algorithm, '"');
  const auto naive = [](const SoftmaxArguments& arguments) {
    naive_branch.add();
    parallel_rows(
        arguments.layout.rows(), arguments.layout.columns,
        [&](int64_t begin, int64_t end) { softmax_naive_rows_cpu(arguments, begin, end); });
  };
  return run_softmax(kOp, algorithm_calls, self, dim, std::nullopt, log, naive);
}

WARPFUSE_LIBRARY_IMPL(CPU, m) {
  m.impl("softmax", softmax_cpu);
  m.impl("log_softmax", log_softmax_cpu);
  m.impl("_softmax_backward", softmax_backward_cpu);
  m.impl("_log_softmax_backward", log_softmax_backward_cpu);
  m.impl("_softmax_algorithm", softmax_algorithm_cpu);
}

}  // namespace
}  // namespace warpfuse
