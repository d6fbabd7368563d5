#include <algorithm>
#include <memory>

#include "common/cascade_sum.h"
#include "rowwise/cpu/backward.h"
#include "rowwise/cpu/dispatch.h"
#include "rowwise/cpu/forward.h"
#include "rowwise/cpu/streaming.h"
#include "rowwise/cpu/strided.h"
#include "rowwise/cpu/transposed.h"
#include "softmax/softmax.h"

namespace warpfuse::WARPFUSE_ISA {
namespace {

// --- along the last dimension -----------------------------------------------------------------

template <typename T, bool kLog>
void forward_contiguous(const SoftmaxArguments& arguments, int64_t begin, int64_t end) {
  const int64_t columns = arguments.layout.columns;
  const Streaming streaming(arguments.layout, sizeof(T), arguments.output);
  const int64_t group = group_rows<T>(columns, kForwardGroupBytes);
  const Scratch<T> scratch(kLog ? 0 : group * (columns + kPackSize<T>));
  for_row_groups(begin, end, group, [&](int64_t row, int64_t rows) {
    softmax_rows<T, kLog>(static_cast<const T*>(arguments.input) + row * columns,
                          static_cast<T*>(arguments.output) + row * columns, rows, columns,
                          scratch.data(), streaming.on(), row + rows < end);
  });
}

template <typename T, bool kLog>
void backward_contiguous(const SoftmaxBackwardArguments& arguments, int64_t begin, int64_t end) {
  const int64_t rows = end - begin, columns = arguments.layout.columns, at = begin * columns;
  const T* g = static_cast<const T*>(arguments.grad_output) + at;
  const T* y = static_cast<const T*>(arguments.output) + at;
  T* dx = static_cast<T*>(arguments.grad_input) + at;
  if constexpr (kRegisterBytes > 0 && sizeof(T) <= sizeof(float)) {
    if (is_in_registers(arguments.layout, sizeof(T), kRegisterBytes)) {
      return backward_rows_in_registers<T, kLog>(g, y, dx, rows, columns);
    }
  }
  const Streaming streaming(arguments.layout, sizeof(T), arguments.grad_input);
  backward_rows<T, kLog>(g, y, dx, rows, columns, streaming.on());
}

// --- along the last dimension, in parts -------------------------------------------------------

// Calls function(part, offset of its first element, its columns).
template <typename Arguments, typename Function>
void for_parts(const SplitRows<Arguments>& in, int64_t begin, int64_t end,
               const Function& function) {
  const int64_t columns = in.arguments.layout.columns;
  for (int64_t part = begin; part < end; ++part) {
    const int64_t column = part % in.parts_per_row * in.part_columns;
    function(part, (in.first_row + part / in.parts_per_row) * columns + column,
             std::min(in.part_columns, columns - column));
  }
}

template <typename T, bool kLog>
void forward_results(const SplitRows<SoftmaxArguments>& in, int64_t begin, int64_t end) {
  const Streaming streaming(in.arguments.layout, sizeof(T), in.arguments.output);
  for_parts(in, begin, end, [&](int64_t part, int64_t at, int64_t count) {
    softmax_part_results<T, kLog>(static_cast<const T*>(in.arguments.input) + at,
                                  static_cast<T*>(in.arguments.output) + at, count,
                                  in.rows[part / in.parts_per_row], streaming.on());
  });
}

template <typename T, bool kLog>
void backward_parts(const SplitRows<SoftmaxBackwardArguments>& in, int64_t begin, int64_t end) {
  for_parts(in, begin, end, [&](int64_t part, int64_t at, int64_t count) {
    in.parts[part].sum =
        backward_sum<T, kLog>(static_cast<const T*>(in.arguments.grad_output) + at,
                              static_cast<const T*>(in.arguments.output) + at, count);
  });
}

template <typename T, bool kLog>
void backward_part_results(const SplitRows<SoftmaxBackwardArguments>& in, int64_t begin,
                           int64_t end) {
  const Streaming streaming(in.arguments.layout, sizeof(T), in.arguments.grad_input);
  for_parts(in, begin, end, [&](int64_t part, int64_t at, int64_t count) {
    const auto sum = static_cast<Compute<T>>(in.rows[part / in.parts_per_row].sum);
    backward_results<T, kLog>(static_cast<const T*>(in.arguments.grad_output) + at,
                              static_cast<const T*>(in.arguments.output) + at,
                              static_cast<T*>(in.arguments.grad_input) + at, count, sum,
                              streaming.on());
  });
}

// --- along another dimension ------------------------------------------------------------------

template <typename T, bool kLog>
void forward_strided(const SoftmaxArguments& arguments, int64_t begin, int64_t end) {
  for_strided_rows<T>(arguments.layout, arguments.output, begin, end,
                      [&](int64_t offset, const auto& rows) {
                        softmax_strided<T, kLog>(static_cast<const T*>(arguments.input) + offset,
                                                 static_cast<T*>(arguments.output) + offset, rows);
                      });
}

template <typename T, bool kLog>
void backward_strided(const SoftmaxBackwardArguments& arguments, int64_t begin, int64_t end) {
  for_strided_rows<T>(
      arguments.layout, arguments.grad_input, begin, end, [&](int64_t offset, const auto& rows) {
        backward_strided<T, kLog>(static_cast<const T*>(arguments.grad_output) + offset,
                                  static_cast<const T*>(arguments.output) + offset,
                                  static_cast<T*>(arguments.grad_input) + offset, rows);
      });
}

// --- along the last dimension, short rows ------------------------------------------------------

template <typename T, bool kLog>
void forward_transposed(const SoftmaxArguments& arguments, int64_t begin, int64_t end) {
  TransposedBlock<T> x(arguments.layout.columns);
  SoftmaxArguments block = arguments;
  block.layout = x.layout();
  block.input = block.output = x.data();
  for_row_groups(begin, end, TransposedBlock<T>::kRows, [&](int64_t row, int64_t rows) {
    const int64_t at = row * arguments.layout.columns;
    x.read(static_cast<const T*>(arguments.input) + at, rows);
    forward_strided<T, kLog>(block, 0, rows);
    x.write(static_cast<T*>(arguments.output) + at, rows);
  });
}

template <typename T, bool kLog>
void backward_transposed(const SoftmaxBackwardArguments& arguments, int64_t begin, int64_t end) {
  TransposedBlock<T> g(arguments.layout.columns), y(arguments.layout.columns);
  SoftmaxBackwardArguments block = arguments;
  block.layout = g.layout();
  block.grad_output = block.grad_input = g.data();
  block.output = y.data();
  for_row_groups(begin, end, TransposedBlock<T>::kRows, [&](int64_t row, int64_t rows) {
    const int64_t at = row * arguments.layout.columns;
    g.read(static_cast<const T*>(arguments.grad_output) + at, rows);
    y.read(static_cast<const T*>(arguments.output) + at, rows);
    backward_strided<T, kLog>(block, 0, rows);
    g.write(static_cast<T*>(arguments.grad_input) + at, rows);
  });
}

// --- without vectors --------------------------------------------------------------------------

template <typename T>
void forward_naive(const SoftmaxArguments& arguments, int64_t begin, int64_t end) {
  using C = Compute<T>;
  const auto [outer, columns, inner] = arguments.layout;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t offset = row / inner * columns * inner + row % inner;
    const T* x = static_cast<const T*>(arguments.input) + offset;
    T* y = static_cast<T*>(arguments.output) + offset;
    C max = kNegativeInfinity<C>;
    for (int64_t j = 0; j < columns; ++j) {
      max = std::fmax(max, static_cast<C>(x[j * inner]));
    }
    CascadeSum<C> exponentials(C(0));
    for (int64_t j = 0; j < columns; ++j) {
      exponentials.add(std::exp(static_cast<C>(x[j * inner]) - max));
    }
    const C sum = exponentials.value();
    for (int64_t j = 0; j < columns; ++j) {
      const C shifted = static_cast<C>(x[j * inner]) - max;
      y[j * inner] =
          static_cast<T>(arguments.log ? shifted - std::log(sum) : std::exp(shifted) / sum);
    }
  }
}

// Calls function(T(), std::bool_constant<log>()) for the arguments' dtype and log.
template <typename Arguments, typename Function>
void dispatch_log(const Arguments& arguments, const Function& function) {
  dispatch(arguments.dtype, [&](auto zero) {
    arguments.log ? function(zero, std::true_type()) : function(zero, std::false_type());
  });
}

}  // namespace

// --- entry points -----------------------------------------------------------------------------

void softmax_rows_cpu(const SoftmaxArguments& arguments, int64_t begin, int64_t end) {
  dispatch_log(arguments, [&](auto zero, auto log) {
    using T = decltype(zero);
    const auto rows = arguments.layout.inner > 1 ? forward_strided<T, log.value>
                      : is_transposed(arguments.layout, sizeof(T))
                          ? forward_transposed<T, log.value>
                          : forward_contiguous<T, log.value>;
    rows(arguments, begin, end);
  });
}

void softmax_backward_rows_cpu(const SoftmaxBackwardArguments& arguments, int64_t begin,
                               int64_t end) {
  dispatch_log(arguments, [&](auto zero, auto log) {
    using T = decltype(zero);
    const auto rows = arguments.layout.inner > 1 ? backward_strided<T, log.value>
                      : is_transposed(arguments.layout, sizeof(T))
                          ? backward_transposed<T, log.value>
                          : backward_contiguous<T, log.value>;
    rows(arguments, begin, end);
  });
}

void softmax_parts_cpu(const SplitRows<SoftmaxArguments>& in, int64_t begin, int64_t end) {
  dispatch(in.arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    for_parts(in, begin, end, [&](int64_t part, int64_t at, int64_t count) {
      in.parts[part] = softmax_part(static_cast<const T*>(in.arguments.input) + at, count);
    });
  });
}

void softmax_part_results_cpu(const SplitRows<SoftmaxArguments>& in, int64_t begin, int64_t end) {
  dispatch_log(in.arguments, [&](auto zero, auto log) {
    forward_results<decltype(zero), log.value>(in, begin, end);
  });
}

void softmax_backward_parts_cpu(const SplitRows<SoftmaxBackwardArguments>& in, int64_t begin,
                                int64_t end) {
  dispatch_log(in.arguments, [&](auto zero, auto log) {
    backward_parts<decltype(zero), log.value>(in, begin, end);
  });
}

void softmax_backward_part_results_cpu(const SplitRows<SoftmaxBackwardArguments>& in, int64_t begin,
                                       int64_t end) {
  dispatch_log(in.arguments, [&](auto zero, auto log) {
    backward_part_results<decltype(zero), log.value>(in, begin, end);
  });
}

void softmax_naive_rows_cpu(const SoftmaxArguments& arguments, int64_t begin, int64_t end) {
  dispatch(arguments.dtype,
           [&](auto zero) { forward_naive<decltype(zero)>(arguments, begin, end); });
}

}  // namespace warpfuse::WARPFUSE_ISA
