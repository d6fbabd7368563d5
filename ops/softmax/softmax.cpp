#include "softmax/softmax.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/check.h"
#include "common/parallel_rows.h"
#include "core/operator.h"
#include "rowwise/cpu/limits.h"
#include "rowwise/row_tensors.h"

namespace warpfuse {
namespace {

// --- operators --------------------------------------------------------------------------------

template <bool kLog>
struct Softmax {
  static constexpr const char* kName = kLog ? "log_softmax" : "softmax";

  template <typename Backend>
  static at::Tensor run(const at::Tensor& self, int64_t dim, std::optional<at::ScalarType> dtype) {
    const at::Tensor input = converted(kName, self, dtype);
    check_floating(kName, "self", input);
    dim = c10::maybe_wrap_dim(dim, input.dim());
    at::Tensor output = Backend::empty(input.sym_sizes(), input.options());
    if (Backend::computes(input)) {
      const auto [x, gap] = input_rows(input, dim, output);
      Backend::launch(input,
                      SoftmaxArguments{x.const_data_ptr(), output.mutable_data_ptr(),
                                       to_dtype(x.scalar_type()), row_layout(x, dim), kLog, gap});
    }
    return output;
  }
};

template <bool kLog>
struct SoftmaxBackward {
  static constexpr const char* kName = kLog ? "_log_softmax_backward" : "_softmax_backward";

  template <typename Backend>
  static at::Tensor run(const at::Tensor& grad_output, const at::Tensor& output, int64_t dim) {
    check_floating(kName, "output", output);
    check_alike(kName, "grad_output", grad_output, output);
    dim = c10::maybe_wrap_dim(dim, output.dim());
    at::Tensor grad_input = Backend::empty(output.sym_sizes(), output.options());
    if (Backend::computes(output)) {
      const auto [g, y] = contiguous_in(grad_output, output, dim, grad_input);
      Backend::launch(
          output, SoftmaxBackwardArguments{g.const_data_ptr(), y.const_data_ptr(),
                                           grad_input.mutable_data_ptr(), to_dtype(y.scalar_type()),
                                           row_layout(y, dim), kLog});
    }
    return grad_input;
  }
};

struct SoftmaxAlgorithm {
  static constexpr const char* kName = "_softmax_algorithm";

  template <typename Backend>
  static at::Tensor run(const at::Tensor& self, int64_t dim, c10::string_view algorithm, bool log) {
    check_floating(kName, "self", self);
    dim = c10::maybe_wrap_dim(dim, self.dim());
    at::Tensor output = Backend::empty(self.sym_sizes(), self.options());
    std::string refusal;
    if (Backend::computes(self)) {
      const at::Tensor x = self.contiguous();
      Backend::launch(
          self, SoftmaxAlgorithmArguments{{x.const_data_ptr(), output.mutable_data_ptr(),
                                           to_dtype(x.scalar_type()), row_layout(x, dim), log},
                                          algorithm,
                                          &refusal});
    }
    WARPFUSE_CHECK(refusal.empty(), kName, "algorithm", refusal, '"', algorithm, '"');
    return output;
  }
};

WARPFUSE_OPERATORS(m) {
  register_operator<Softmax<false>>(m);
  register_operator<Softmax<true>>(m);
  register_operator<SoftmaxBackward<false>>(m);
  register_operator<SoftmaxBackward<true>>(m);
  register_operator<SoftmaxAlgorithm>(m);
}

// --- the CPU: rows in parts -------------------------------------------------------------------

Counter rows_branch("cpu.rows");
Counter registers_branch("cpu.in_registers");  // of the backward alone
Counter transposed_branch("cpu.transposed");
Counter parts_branch("cpu.parts");
Counter column_branch("cpu.column");
Counter naive_branch("cpu.naive");
Counter streamed_results("streamed.softmax");

// Columns of a part: few enough to be read twice from a first-level cache.
constexpr int64_t kPartColumns = 8192;

// Elements of the rows that are in work at a time.
constexpr int64_t kGroupElements = int64_t{1024} * 1024;

// Rows that no cache keeps, and rows that are too few for the threads, are cut into parts. Parts
// compute exponentials twice.
bool wants_parts(const RowLayout& layout) {
  return layout.inner == 1 &&
         (layout.columns * int64_t{sizeof(float)} > cached_row_bytes() ||
          (layout.rows() < at::get_num_threads() && layout.columns >= 4 * kElementsPerThread));
}

// A row's maximum, and the sum of exp(x - max) over it, from those of its parts.
PartialSoftmax whole_row(const SoftmaxArguments&, const PartialSoftmax* parts, int64_t count) {
  PartialSoftmax row{parts[0].max, 0.0};
  for (int64_t i = 1; i < count; ++i) {
    row.max = std::max(row.max, parts[i].max);
  }
  for (int64_t i = 0; i < count; ++i) {
    row.sum += parts[i].sum * std::exp(parts[i].max - row.max);
  }
  return row;
}

PartialSoftmax whole_row(const SoftmaxBackwardArguments&, const PartialSoftmax* parts,
                         int64_t count) {
  PartialSoftmax row;
  for (int64_t i = 0; i < count; ++i) {
    row.sum += parts[i].sum;
  }
  return row;
}

// `reduce` fills in.parts, then `results` reads in.rows. A group of rows at a time is small enough
// for `results` to find in the last-level cache what `reduce` has read.
template <typename Arguments, typename Kernel>
void run_in_parts(const Arguments& arguments, const Kernel& reduce, const Kernel& results) {
  const int64_t rows = arguments.layout.rows();
  const int64_t columns = arguments.layout.columns;
  const int64_t parts_per_row = (columns + kPartColumns - 1) / kPartColumns;
  const int64_t group = std::clamp<int64_t>(kGroupElements / columns, 1, rows);
  std::vector<PartialSoftmax> parts(group * parts_per_row);
  std::vector<PartialSoftmax> whole(group);
  SplitRows<Arguments> in{arguments, 0, kPartColumns, parts_per_row, parts.data(), whole.data()};
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

// --- the CPU: launches ------------------------------------------------------------------------

bool is_in_registers(const SoftmaxArguments&) { return false; }

bool is_in_registers(const SoftmaxBackwardArguments& arguments) {
  const CpuCapability capability = cpu_capability();
  return is_in_registers(arguments.layout, element_bytes(arguments.dtype),
                         capability == CpuCapability::avx512 ? 64
                         : capability == CpuCapability::avx2 ? 32
                                                             : 0);
}

// `kernel` on rows, or `reduce` and `results` on their parts.
template <typename Arguments, typename Kernel, typename PartKernel>
void run(const Arguments& arguments, const void* result, const Kernel& kernel,
         const PartKernel& reduce, const PartKernel& results) {
  const RowLayout& layout = arguments.layout;
  const int bytes = element_bytes(arguments.dtype);
  if (is_streamed(layout, bytes, result)) {
    streamed_results.add();
  }
  if (wants_parts(layout)) {
    parts_branch.add();
    run_in_parts(arguments, reduce, results);
    return;
  }
  (layout.inner > 1               ? column_branch
   : is_transposed(layout, bytes) ? transposed_branch
   : is_in_registers(arguments)   ? registers_branch
                                  : rows_branch)
      .add();
  parallel_layout_rows(arguments, kernel);
}

}  // namespace

void launch_cpu(const SoftmaxArguments& arguments) {
  run(arguments, arguments.output, softmax_rows_cpu, softmax_parts_cpu, softmax_part_results_cpu);
}

void launch_cpu(const SoftmaxBackwardArguments& arguments) {
  run(arguments, arguments.grad_input, softmax_backward_rows_cpu, softmax_backward_parts_cpu,
      softmax_backward_part_results_cpu);
}

void launch_cpu(const SoftmaxAlgorithmArguments& arguments) {
  if (arguments.algorithm == "vector") {
    launch_cpu(arguments.softmax);
  } else if (arguments.algorithm == "naive") {
    naive_branch.add();
    const RowLayout& layout = arguments.softmax.layout;
    parallel_rows(layout.rows(), layout.columns, [&](int64_t begin, int64_t end) {
      softmax_naive_rows_cpu(arguments.softmax, begin, end);
    });
  } else {
    *arguments.refusal = "\"naive\" or \"vector\" on the CPU";
  }
}

}  // namespace warpfuse
