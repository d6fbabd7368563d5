#include <algorithm>
#include <cmath>
#include <limits>

#include "dropout_softmax/dropout_softmax.h"
#include "dropout_softmax/transposed_rows_cpu.h"
#include "rowwise/cpu/backward.h"
#include "rowwise/cpu/dispatch.h"
#include "rowwise/cpu/dropout.h"
#include "rowwise/cpu/forward.h"
#include "rowwise/cpu/streaming.h"
#include "rowwise/cpu/strided.h"

namespace warpfuse::WARPFUSE_ISA {
namespace {

// --- along the last dimension -----------------------------------------------------------------

// Calls visit(row, the factors of its elements). The factors of a group of rows are drawn together:
// their elements are contiguous.
template <typename T, typename Arguments, typename Visit>
void for_dropped_rows(const Arguments& arguments, int64_t begin, int64_t end, const Visit& visit) {
  const int64_t columns = arguments.layout.columns;
  const Rng rng = arguments.rng.get();
  const int64_t group = group_rows<T>(columns, kForwardGroupBytes);
  const Scratch<T> factors(group * columns);
  for_row_groups(begin, end, group, [&](int64_t first, int64_t rows) {
    draw_factors(arguments.dropout, rng, first * columns, rows * columns,
                 static_cast<Compute<T>>(arguments.dropout.scale), factors.data());
    for (int64_t row = 0; row < rows; ++row) {
      visit(first + row, factors.data() + row * columns);
    }
  });
}

template <typename T, bool kSoftmaxFirst>
void forward(const DropoutSoftmaxArguments& arguments, int64_t begin, int64_t end) {
  using C = Compute<T>;
  const int64_t columns = arguments.layout.columns;
  const Streaming streaming(arguments.layout, sizeof(T), arguments.output);
  const Scratch<T> scratch(columns);
  for_dropped_rows<T>(arguments, begin, end, [&](int64_t row, const C* factors) {
    const T* from = static_cast<const T*>(arguments.input) + row * columns;
    T* const to = static_cast<T*>(arguments.output) + row * columns;
    const auto drop = [&](const Pack<T>& pack, int64_t i) C10_ALWAYS_INLINE_ATTRIBUTE {
      return pack * Pack<T>::loadu(factors + i);
    };
    const auto x = [&](int64_t i, int64_t n) C10_ALWAYS_INLINE_ATTRIBUTE {
      const Pack<T> pack = load(from + i, n);
      return kSoftmaxFirst ? pack : drop(pack, i);
    };
    const C max = max_of<T>(columns, x);
    const C sum =
        softmax_row<T>(x, max, to, powers_of(from, to, scratch.data(), columns, streaming.on()),
                       columns, streaming.on(), row + 1 < end ? from + columns : from,
                       [&](const Pack<T>& y, int64_t i)
                           C10_ALWAYS_INLINE_ATTRIBUTE { return kSoftmaxFirst ? drop(y, i) : y; });
    if constexpr (kSoftmaxFirst) {
      C* statistics = static_cast<C*>(arguments.statistics) + 2 * row;
      statistics[0] = max;
      statistics[1] = std::log(sum);
    }
  });
}

// y = softmax(x * factors) was saved: dx = factors * y * (g - sum(y * g)).
template <typename T>
void dropout_first_backward(const DropoutSoftmaxBackwardArguments& arguments, int64_t begin,
                            int64_t end) {
  const int64_t columns = arguments.layout.columns;
  const Streaming streaming(arguments.layout, sizeof(T), arguments.grad_input);
  for_dropped_rows<T>(arguments, begin, end, [&](int64_t row, const Compute<T>* factors) {
    const T* g = static_cast<const T*>(arguments.grad_output) + row * columns;
    const T* y = static_cast<const T*>(arguments.saved) + row * columns;
    const Pack<T> sum(backward_sum<T, false>(g, y, columns));
    transform(static_cast<T*>(arguments.grad_input) + row * columns, columns, streaming.on(),
              [&](int64_t i, int64_t n) C10_ALWAYS_INLINE_ATTRIBUTE {
                return BackwardRule<false>::result(load(g + i, n), load(y + i, n), sum) *
                       Pack<T>::loadu(factors + i);
              });
  });
}

// The input x was saved: y = exp(x - max - log sum), dx = y * (g * factors - sum(g * factors * y)).
template <typename T>
void softmax_first_backward(const DropoutSoftmaxBackwardArguments& arguments, int64_t begin,
                            int64_t end) {
  using C = Compute<T>;
  const int64_t columns = arguments.layout.columns;
  const Streaming streaming(arguments.layout, sizeof(T), arguments.grad_input);
  const Scratch<T> powers(columns);
  for_dropped_rows<T>(arguments, begin, end, [&](int64_t row, const C* factors) {
    const T* from = static_cast<const T*>(arguments.saved) + row * columns;
    const T* gradient = static_cast<const T*>(arguments.grad_output) + row * columns;
    const auto x = [&](int64_t i, int64_t n)
                       C10_ALWAYS_INLINE_ATTRIBUTE { return load(from + i, n); };
    const auto g = [&](int64_t i, int64_t n) C10_ALWAYS_INLINE_ATTRIBUTE {
      return load(gradient + i, n) * Pack<T>::loadu(factors + i);
    };
    const C* statistics = static_cast<const C*>(arguments.statistics) + 2 * row;
    const Pack<T> sum(
        recomputed_sum<T>(x, g, statistics[0], statistics[1], powers.data(), columns));
    transform(static_cast<T*>(arguments.grad_input) + row * columns, columns, streaming.on(),
              [&](int64_t i, int64_t n) C10_ALWAYS_INLINE_ATTRIBUTE {
                return Pack<T>::loadu(powers.data() + i) * (g(i, n) - sum);
              });
  });
}

}  // namespace

// --- entry points -----------------------------------------------------------------------------

void dropout_softmax_rows_cpu(const DropoutSoftmaxArguments& arguments, int64_t begin,
                              int64_t end) {
  dispatch(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool softmax_first = arguments.softmax_first;
    const auto rows = is_transposed(arguments) ? softmax_first ? forward_transposed<T, true>
                                                               : forward_transposed<T, false>
                      : softmax_first          ? forward<T, true>
                                               : forward<T, false>;
    rows(arguments, begin, end);
  });
}

void dropout_softmax_backward_rows_cpu(const DropoutSoftmaxBackwardArguments& arguments,
                                       int64_t begin, int64_t end) {
  dispatch(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool softmax_first = arguments.softmax_first;
    const auto rows = is_transposed(arguments) ? softmax_first ? backward_transposed<T, true>
                                                               : backward_transposed<T, false>
                      : softmax_first          ? softmax_first_backward<T>
                                               : dropout_first_backward<T>;
    rows(arguments, begin, end);
  });
}

void drop_elements_cpu(const DropElementsArguments& arguments, int64_t begin, int64_t end) {
  dispatch(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = Compute<T>;
    constexpr int64_t kPiece = kDropoutChunk * kDropoutBlock;
    const Rng rng = arguments.rng.get();
    alignas(64) C factors[kPiece];
    // An infinite input that is dropped becomes NaN; a scaled probability is no such input where it
    // overflowed T.
    const C most =
        arguments.scaled ? std::numeric_limits<C>::max() : std::numeric_limits<C>::infinity();
    for (int64_t at = begin; at < end; at += kPiece) {
      const int64_t count = std::min(kPiece, end - at);
      draw_factors(arguments.dropout, rng, at, count,
                   arguments.scaled ? C(1) : static_cast<C>(arguments.dropout.scale), factors);
      // One element after the other: a pack that is done twice would be dropped twice in place.
      const T* from = static_cast<const T*>(arguments.input) + at;
      T* to = static_cast<T*>(arguments.output) + at;
      for (int64_t i = 0; i < count; ++i) {
        to[i] = static_cast<T>(std::min(static_cast<C>(from[i]), most) * factors[i]);
      }
    }
  });
}

void strided_softmax_cpu(const ScaledSoftmaxArguments& arguments, int64_t begin, int64_t end) {
  dispatch(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    for_strided_rows<T>(arguments.layout, arguments.output, begin, end,
                        [&](int64_t offset, const auto& rows) {
                          softmax_strided<T, false>(static_cast<const T*>(arguments.input) + offset,
                                                    static_cast<T*>(arguments.output) + offset,
                                                    rows, static_cast<Compute<T>>(arguments.scale));
                        });
  });
}

void strided_softmax_backward_cpu(const DropoutSoftmaxBackwardArguments& arguments, int64_t begin,
                                  int64_t end) {
  dispatch(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    for_strided_rows<T>(
        arguments.layout, arguments.grad_input, begin, end, [&](int64_t offset, const auto& rows) {
          backward_strided<T, false>(static_cast<const T*>(arguments.grad_output) + offset,
                                     static_cast<const T*>(arguments.saved) + offset,
                                     static_cast<T*>(arguments.grad_input) + offset, rows);
        });
  });
}

void mark_elements_cpu(const DropoutMaskArguments& arguments, int64_t begin, int64_t end) {
  constexpr int64_t kPiece = kDropoutChunk * kDropoutBlock;
  const Rng rng = arguments.rng.get();
  alignas(64) float factors[kPiece];
  for (int64_t at = begin; at < end; at += kPiece) {
    const int64_t count = std::min(kPiece, end - at);
    draw_factors(arguments.dropout, rng, at, count, 1.0F, factors);
    std::transform(factors, factors + count, arguments.mask + at,
                   [](float factor) { return factor != 0; });
  }
}

}  // namespace warpfuse::WARPFUSE_ISA
