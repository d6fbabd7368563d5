#include "softmax/softmax_kernel_cpu.h"

#include <algorithm>
#include <vector>

#include "rowwise/cpu/backward.h"
#include "rowwise/cpu/dispatch.h"
#include "rowwise/cpu/forward.h"

namespace warpfuse::WARPFUSE_ISA {
namespace {

// --- along the last dimension -----------------------------------------------------------------

template <typename T, bool kLog>
void forward_contiguous(const SoftmaxArguments& arguments, int64_t begin, int64_t end) {
  using C = Compute<T>;
  const int64_t columns = arguments.layout.columns;
  const T* input = static_cast<const T*>(arguments.input);
  T* output = static_cast<T*>(arguments.output);
  if constexpr (std::is_same_v<T, C>) {
    for (int64_t row = begin; row < end; ++row) {
      softmax_row<T, kLog>(input + row * columns, output + row * columns, nullptr, columns);
    }
  } else {
    std::vector<C> scratch(columns);
    for (int64_t row = begin; row < end; ++row) {
      convert(input + row * columns, scratch.data(), columns);
      softmax_row<T, kLog>(scratch.data(), output + row * columns, scratch.data(), columns);
    }
  }
}

template <typename T, bool kLog>
void backward_contiguous(const SoftmaxBackwardArguments& arguments, int64_t begin, int64_t end) {
  using C = Compute<T>;
  const int64_t columns = arguments.layout.columns;
  const T* grad_output = static_cast<const T*>(arguments.grad_output);
  const T* output = static_cast<const T*>(arguments.output);
  T* grad_input = static_cast<T*>(arguments.grad_input);
  if constexpr (std::is_same_v<T, C>) {
    for (int64_t at = begin * columns; at < end * columns; at += columns) {
      softmax_backward_row<C, kLog>(grad_output + at, output + at, grad_input + at, C(1), columns);
    }
  } else {
    std::vector<C> g(columns), y(columns);
    for (int64_t at = begin * columns; at < end * columns; at += columns) {
      convert(grad_output + at, g.data(), columns);
      convert(output + at, y.data(), columns);
      softmax_backward_row<C, kLog>(g.data(), y.data(), g.data(), C(1), columns);
      convert(g.data(), grad_input + at, columns);
    }
  }
}

// --- along another dimension ------------------------------------------------------------------

template <typename T, bool kLog>
void forward_strided(const SoftmaxArguments& arguments, int64_t begin, int64_t end) {
  const auto [outer, columns, inner] = arguments.layout;
  const T* input = static_cast<const T*>(arguments.input);
  T* output = static_cast<T*>(arguments.output);
  constexpr int64_t kLanes = at::vec::Vectorized<Compute<T>>::size();
  for (int64_t row = begin; row < end;) {
    const int64_t at = row % inner;
    const int64_t lanes = std::min({kLanes, inner - at, end - row});
    const int64_t offset = row / inner * columns * inner + at;
    softmax_lanes<T, kLog>(input + offset, output + offset, columns, inner, lanes);
    row += lanes;
  }
}

template <typename T, bool kLog>
void backward_strided(const SoftmaxBackwardArguments& arguments, int64_t begin, int64_t end) {
  using C = Compute<T>;
  const auto [outer, columns, inner] = arguments.layout;
  const T* grad_output = static_cast<const T*>(arguments.grad_output);
  const T* output = static_cast<const T*>(arguments.output);
  T* grad_input = static_cast<T*>(arguments.grad_input);
  std::vector<C> g(columns), y(columns);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t offset = row / inner * columns * inner + row % inner;
    for (int64_t j = 0; j < columns; ++j) {
      g[j] = static_cast<C>(grad_output[offset + j * inner]);
      y[j] = static_cast<C>(output[offset + j * inner]);
    }
    softmax_backward_row<C, kLog>(g.data(), y.data(), g.data(), C(1), columns);
    for (int64_t j = 0; j < columns; ++j) {
      grad_input[offset + j * inner] = static_cast<T>(g[j]);
    }
  }
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
    C max = kLowest<C>;
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

}  // namespace

// --- entry points -----------------------------------------------------------------------------

void softmax_rows_cpu(const SoftmaxArguments& arguments, int64_t begin, int64_t end) {
  dispatch(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (arguments.layout.inner == 1) {
      arguments.log ? forward_contiguous<T, true>(arguments, begin, end)
                    : forward_contiguous<T, false>(arguments, begin, end);
    } else {
      arguments.log ? forward_strided<T, true>(arguments, begin, end)
                    : forward_strided<T, false>(arguments, begin, end);
    }
  });
}

void softmax_backward_rows_cpu(const SoftmaxBackwardArguments& arguments, int64_t begin,
                               int64_t end) {
  dispatch(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (arguments.layout.inner == 1) {
      arguments.log ? backward_contiguous<T, true>(arguments, begin, end)
                    : backward_contiguous<T, false>(arguments, begin, end);
    } else {
      arguments.log ? backward_strided<T, true>(arguments, begin, end)
                    : backward_strided<T, false>(arguments, begin, end);
    }
  });
}

void softmax_naive_rows_cpu(const SoftmaxArguments& arguments, int64_t begin, int64_t end) {
  dispatch(arguments.dtype,
           [&](auto zero) { forward_naive<decltype(zero)>(arguments, begin, end); });
}

}  // namespace warpfuse::WARPFUSE_ISA
