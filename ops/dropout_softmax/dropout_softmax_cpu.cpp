#include "common/parallel_rows.h"
#include "common/random_cpu.h"
#include "common/registration.h"
#include "dropout_softmax/dropout_softmax.h"
#include "dropout_softmax/dropout_softmax_kernel_cpu.h"

namespace warpfuse {
namespace {

Counter forward_calls("dropout_softmax.cpu");
Counter backward_calls("dropout_softmax_backward.cpu");
Counter linear_calls("linear_dropout_softmax.cpu");
Counter mask_calls("dropout_mask.cpu");
Counter rows_branch("cpu.dropout_rows");
Counter column_branch("cpu.dropout_column");

// Elements of a task that drops or marks them one by one: whole Philox blocks, and cache lines.
constexpr int64_t kElementGranule = 1024;

// Rows of a task along another dimension: whole groups of four vectors of any dtype.
constexpr int64_t kColumnGranule = 128;

template <typename Arguments, typename Kernel>
void over_rows(const Arguments& arguments, const Kernel& kernel) {
  const bool last = arguments.layout.inner == 1;
  (last ? rows_branch : column_branch).add();
  parallel_rows(
      arguments.layout.rows(), arguments.layout.columns,
      [&](int64_t begin, int64_t end) { kernel(arguments, begin, end); },
      last ? 1 : kColumnGranule);
}

template <typename Arguments, typename Kernel>
void over_elements(const Arguments& arguments, int64_t elements, const Kernel& kernel) {
  parallel_rows(
      elements, 1, [&](int64_t begin, int64_t end) { kernel(arguments, begin, end); },
      kElementGranule);
}

template <typename Arguments>
void drop(const void* from, void* to, const Arguments& arguments, bool scaled) {
  over_elements(DropElementsArguments{from, to, arguments.dtype, arguments.dropout,
                                      arguments.rng.get(), scaled},
                arguments.layout.rows() * arguments.layout.columns, drop_elements_cpu);
}

template <typename Arguments>
void softmax(const void* from, void* to, const Arguments& arguments, double scale) {
  over_rows(ScaledSoftmaxArguments{from, to, arguments.dtype, arguments.layout, scale},
            undropped_lanes_cpu);
}

void run_forward(const DropoutSoftmaxArguments& arguments) {
  const Rng rng = arguments.rng.get();
  arguments.rng_used[0] = static_cast<int64_t>(rng.seed);
  arguments.rng_used[1] = static_cast<int64_t>(rng.offset);
  if (arguments.layout.inner == 1) {
    return over_rows(arguments, dropout_softmax_rows_cpu);
  }
  if (arguments.softmax_first) {
    softmax(arguments.input, arguments.output, arguments, arguments.dropout.scale);
    drop(arguments.output, arguments.output, arguments, true);
  } else {
    drop(arguments.input, arguments.output, arguments, false);
    softmax(arguments.output, arguments.output, arguments, 1.0);
  }
}

void run_backward(DropoutSoftmaxBackwardArguments arguments, const at::Tensor& grad_output) {
  if (arguments.layout.inner == 1) {
    return over_rows(arguments, dropout_softmax_backward_rows_cpu);
  }
  if (!arguments.softmax_first) {
    over_rows(arguments, undropped_backward_lanes_cpu);
    return drop(arguments.grad_input, arguments.grad_input, arguments, false);
  }
  const at::Tensor dropped = at::empty(grad_output.sizes(), grad_output.options());
  drop(arguments.grad_output, dropped.mutable_data_ptr(), arguments, false);
  softmax(arguments.saved, arguments.grad_input, arguments, 1.0);
  arguments.grad_output = dropped.const_data_ptr();
  arguments.saved = arguments.grad_input;
  over_rows(arguments, undropped_backward_lanes_cpu);
}

// --- operators --------------------------------------------------------------------------------

DropoutSoftmaxResult forward_cpu(const at::Tensor& self, int64_t dim, double dropout_p,
                                 bool softmax_first, const std::optional<at::Tensor>& rng) {
  check_dropout_softmax("_dropout_softmax", self, dim, dropout_p, rng);
  forward_calls.add();
  const at::Tensor input = self.contiguous();
  return run_dropout_softmax(input, at::empty_like(input), dim, dropout_p, softmax_first, rng,
                             draw_rng_on_cpu, run_forward);
}

at::Tensor backward_cpu(const at::Tensor& grad_output, const at::Tensor& saved,
                        const at::Tensor& statistics, const at::Tensor& rng, int64_t dim,
                        double dropout_p, bool softmax_first) {
  return run_dropout_softmax_backward(backward_calls, grad_output, saved, statistics, rng, dim,
                                      dropout_p, softmax_first,
                                      [&](const DropoutSoftmaxBackwardArguments& arguments) {
                                        run_backward(arguments, grad_output);
                                      });
}

std::tuple<at::Tensor, at::Tensor> linear_cpu(const at::Tensor& input, const at::Tensor& weight,
                                              const std::optional<at::Tensor>& bias,
                                              double dropout_p,
                                              const std::optional<at::Tensor>& rng) {
  check_linear_dropout_softmax("_linear_dropout_softmax", input, weight, bias, dropout_p, rng);
  linear_calls.add();
  return run_linear_dropout_softmax(input, weight, bias, dropout_p, rng, draw_rng_on_cpu,
                                    run_forward);
}

at::Tensor mask_cpu(const at::Tensor& like, double dropout_p, const at::Tensor& rng) {
  return run_dropout_mask(mask_calls, like, dropout_p, rng,
                          [](const DropoutMaskArguments& arguments) {
                            over_elements(arguments, arguments.elements, mark_elements_cpu);
                          });
}

WARPFUSE_LIBRARY_IMPL(CPU, m) {
  m.impl("_dropout_softmax", forward_cpu);
  m.impl("_dropout_softmax_backward", backward_cpu);
  m.impl("_linear_dropout_softmax", linear_cpu);
  m.impl("_dropout_mask", mask_cpu);
}

}  // namespace
}  // namespace warpfuse
