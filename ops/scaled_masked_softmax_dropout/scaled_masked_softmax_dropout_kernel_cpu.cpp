#include "scaled_masked_softmax_dropout/scaled_masked_softmax_dropout_kernel_cpu.h"

#include <cmath>
#include <limits>
#include <type_traits>

#include "rowwise/cpu/dispatch.h"
#include "rowwise/cpu/dropout.h"
#include "rowwise/cpu/mask.h"

namespace warpfuse::WARPFUSE_ISA {
namespace {

template <typename C>
constexpr C kNoKey = std::numeric_limits<C>::infinity();  // the maximum of a row without one

template <typename T, typename Mask>
void forward(const MaskedSoftmaxDropoutArguments& arguments, int64_t begin, int64_t end) {
  using C = Compute<T>;
  const int64_t keys = arguments.rules.keys;
  const Streaming streaming(arguments.rows, keys * int64_t{sizeof(T)});
  const bool streamed = streaming.on();
  const Rng rng = arguments.rng.get();
  const Scratch<T> powers(keys), factors(keys);
  Mask mask(arguments.mask, keys);
  const Pack<T> scale(static_cast<C>(arguments.scale));
  for (int64_t row = begin; row < end; ++row) {
    const RowPlace place = arguments.rules.place(row);
    const KeyInterval visible = arguments.rules.visible(place);
    const int64_t count = visible.end - visible.begin;
    const T* scores = static_cast<const T*>(arguments.scores) + row * keys + visible.begin;
    T* output = static_cast<T*>(arguments.output) + row * keys;
    C* statistics = static_cast<C*>(arguments.statistics) + 2 * row;
    mask.enter(place, visible);
    const auto x = [&](int64_t i, int64_t n) C10_ALWAYS_INLINE_ATTRIBUTE {
      return mask.score(load(scores + i, n) * scale, i, n);
    };

    write_zeros(output, visible.begin, streamed);
    const C max = max_of<T>(count, x);
    if (max > kLowest<C> || mask.shows_any()) {
      draw_factors(arguments.dropout, rng, row * keys + visible.begin, count,
                   static_cast<C>(arguments.dropout.scale), factors.data());
      T* result = output + visible.begin;
      const C sum = dropped_softmax_row<T>(x, max, factors.data(), result, powers.data(), count,
                                           streamed, row + 1 < end ? scores + keys : scores);
      if (!(sum > 0 && sum < std::numeric_limits<C>::infinity())) {
        mask.zero_hidden(result);  // NaN belongs to the visible keys alone
      }
      statistics[0] = max;
      statistics[1] = std::log(sum);
    } else {
      write_zeros(output + visible.begin, count, streamed);
      statistics[0] = kNoKey<C>;
      statistics[1] = 0;
    }
    write_zeros(output + visible.end, keys - visible.end, streamed);
  }
}

template <typename T, typename Mask>
void backward(const MaskedSoftmaxDropoutBackwardArguments& arguments, int64_t begin, int64_t end) {
  using C = Compute<T>;
  const int64_t keys = arguments.rules.keys;
  const Streaming streaming(arguments.rows, keys * int64_t{sizeof(T)});
  const bool streamed = streaming.on();
  const Rng rng = arguments.rng.get();
  const Scratch<T> probabilities(keys), factors(keys);
  Mask mask(arguments.mask, keys);
  const Pack<T> scale(static_cast<C>(arguments.scale));
  for (int64_t row = begin; row < end; ++row) {
    const RowPlace place = arguments.rules.place(row);
    const KeyInterval visible = arguments.rules.visible(place);
    const int64_t count = visible.end - visible.begin;
    const int64_t first = row * keys + visible.begin;
    const T* gradients = static_cast<const T*>(arguments.grad_output) + first;
    const T* scores = static_cast<const T*>(arguments.scores) + first;
    const C* statistics = static_cast<const C*>(arguments.statistics) + 2 * row;
    T* grad_scores = static_cast<T*>(arguments.grad_scores) + row * keys;
    if (statistics[0] == kNoKey<C> && statistics[1] == 0) {
      write_zeros(grad_scores, keys, streamed);
      continue;
    }
    mask.enter(place, visible);
    draw_factors(arguments.dropout, rng, first, count, static_cast<C>(arguments.dropout.scale),
                 factors.data());
    const auto x = [&](int64_t i, int64_t n) C10_ALWAYS_INLINE_ATTRIBUTE {
      return mask.score(load(scores + i, n) * scale, i, n);
    };
    const auto g = [&](int64_t i, int64_t n) C10_ALWAYS_INLINE_ATTRIBUTE {
      return mask.incoming(load(gradients + i, n) * Pack<T>::loadu(factors.data() + i), i, n);
    };

    const Pack<T> sum(
        recomputed_sum<T>(x, g, statistics[0], statistics[1], probabilities.data(), count));
    write_zeros(grad_scores, visible.begin, streamed);
    transform(grad_scores + visible.begin, count, streamed,
              [&](int64_t i, int64_t n) C10_ALWAYS_INLINE_ATTRIBUTE {
                const Pack<T> y = Pack<T>::loadu(probabilities.data() + i);
                return mask.outgoing(y * (g(i, n) - sum) * scale, i, n);
              });
    write_zeros(grad_scores + visible.end, keys - visible.end, streamed);
  }
}

// Calls function(T(), the type of mask) for the dtype and the mask of the arguments.
template <typename Arguments, typename Function>
void dispatch_mask(const Arguments& arguments, const Function& function) {
  dispatch(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    switch (arguments.mask.kind) {
      case MaskKind::none:
        return function(zero, std::type_identity<NoMask<T>>());
      case MaskKind::boolean:
        return function(zero, std::type_identity<BooleanMask<T>>());
      case MaskKind::additive:
        return function(zero, std::type_identity<AdditiveMask<T, T>>());
      case MaskKind::additive_float32:
        return function(zero, std::type_identity<AdditiveMask<T, float>>());
    }
  });
}

}  // namespace

void masked_dropout_rows_cpu(const MaskedSoftmaxDropoutArguments& arguments, int64_t begin,
                             int64_t end) {
  dispatch_mask(arguments, [&](auto zero, auto mask) {
    forward<decltype(zero), typename decltype(mask)::type>(arguments, begin, end);
  });
}

void masked_dropout_backward_rows_cpu(const MaskedSoftmaxDropoutBackwardArguments& arguments,
                                      int64_t begin, int64_t end) {
  dispatch_mask(arguments, [&](auto zero, auto mask) {
    backward<decltype(zero), typename decltype(mask)::type>(arguments, begin, end);
  });
}

}  // namespace warpfuse::WARPFUSE_ISA
