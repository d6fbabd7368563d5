#include <cmath>
#include <limits>
#include <type_traits>

#include "rowwise/cpu/dispatch.h"
#include "rowwise/cpu/dropout.h"
#include "rowwise/cpu/dropout_factors.h"
#include "rowwise/cpu/forward.h"
#include "rowwise/cpu/mask.h"
#include "rowwise/cpu/streaming.h"
#include "scaled_masked_softmax/masked_block_cpu.h"
#include "scaled_masked_softmax/scaled_masked_softmax.h"
#include "scaled_masked_softmax/transposed_rows_cpu.h"

namespace warpfuse::WARPFUSE_ISA {
namespace {

template <typename T, typename Mask, typename Arguments>
void forward(const Arguments& arguments, int64_t begin, int64_t end) {
  using C = Compute<T>;
  constexpr bool kDrops = kDropout<Arguments>;
  const int64_t keys = arguments.rules.keys;
  const Streaming streaming(arguments.rows, keys * int64_t{sizeof(T)}, arguments.output);
  const bool streamed = streaming.on();
  const Scratch<T> scratch(keys);
  const DropoutFactors<T, kDrops> factors(arguments, keys);
  Mask mask(arguments.mask, keys);
  const Pack<T> scale(static_cast<C>(arguments.scale));
  for (int64_t row = begin; row < end; ++row) {
    const RowPlace place = arguments.rules.place(row);
    const KeyInterval visible = arguments.rules.visible(place);
    const int64_t count = visible.end - visible.begin;
    const T* scores = static_cast<const T*>(arguments.scores) + row * keys + visible.begin;
    T* output = static_cast<T*>(arguments.output) + row * keys;
    mask.enter(place, visible);
    const auto x = [&](int64_t i, int64_t n) C10_ALWAYS_INLINE_ATTRIBUTE {
      return mask.score(load(scores + i, n) * scale, i, n);
    };

    write_zeros(output, visible.begin, streamed);
    C max = max_of<T>(count, x);
    C sum = 1;
    T* result = output + visible.begin;
    if (max > kNegativeInfinity<C> || mask.shows_any()) {
      factors.draw(arguments, row * keys + visible.begin, count);
      sum =
          softmax_row<T>(x, max, result, powers_of(scores, result, scratch.data(), count, streamed),
                         count, streamed, row + 1 < end ? scores + keys : scores,
                         [&](const Pack<T>& y, int64_t i)
                             C10_ALWAYS_INLINE_ATTRIBUTE { return factors.apply(y, i); });
      if (!(sum > 0 && sum < std::numeric_limits<C>::infinity())) {
        mask.zero_hidden(result);  // NaN belongs to the visible keys alone
      }
    } else {
      write_zeros(result, count, streamed);
      max = kNoKey<C>;
    }
    if constexpr (kDrops) {
      C* statistics = static_cast<C*>(arguments.statistics) + 2 * row;
      statistics[0] = max;
      statistics[1] = std::log(sum);
    }
    write_zeros(output + visible.end, keys - visible.end, streamed);
  }
}

// grad_scores = scale * y * (g - sum(y * g)), 0 for hidden keys, where y is the forward's output,
// or, with dropout, the softmax recomputed from the scores, and g has the factors of dropout.
template <typename T, typename Mask, typename Arguments>
void backward(const Arguments& arguments, int64_t begin, int64_t end) {
  using C = Compute<T>;
  constexpr bool kDrops = kDropout<Arguments>;
  const int64_t keys = arguments.rules.keys;
  const Streaming streaming(arguments.rows, keys * int64_t{sizeof(T)}, arguments.grad_scores);
  const bool streamed = streaming.on();
  const Scratch<T> probabilities(kDrops ? keys : 0);
  const DropoutFactors<T, kDrops> factors(arguments, keys);
  Mask mask(arguments.mask, keys);
  const Pack<T> scale(static_cast<C>(arguments.scale));
  for (int64_t row = begin; row < end; ++row) {
    const RowPlace place = arguments.rules.place(row);
    const KeyInterval visible = arguments.rules.visible(place);
    const int64_t count = visible.end - visible.begin;
    const int64_t first = row * keys + visible.begin;
    const T* gradients = static_cast<const T*>(arguments.grad_output) + first;
    T* grad_scores = static_cast<T*>(arguments.grad_scores) + row * keys;
    const auto g = [&](int64_t i, int64_t n) C10_ALWAYS_INLINE_ATTRIBUTE {
      return factors.apply(load(gradients + i, n), i);
    };
    const auto counted_g = [&](int64_t i, int64_t n)
                               C10_ALWAYS_INLINE_ATTRIBUTE { return mask.incoming(g(i, n), i, n); };
    const auto write = [&](const Pack<T>& sum, const auto& y) C10_ALWAYS_INLINE_ATTRIBUTE {
      write_zeros(grad_scores, visible.begin, streamed);
      transform(grad_scores + visible.begin, count, streamed,
                [&](int64_t i, int64_t n) C10_ALWAYS_INLINE_ATTRIBUTE {
                  return mask.outgoing(y(i, n) * (g(i, n) - sum) * scale, i, n);
                });
      write_zeros(grad_scores + visible.end, keys - visible.end, streamed);
    };

    if constexpr (kDrops) {
      const T* scores = static_cast<const T*>(arguments.scores) + first;
      const C* statistics = static_cast<const C*>(arguments.statistics) + 2 * row;
      if (statistics[0] == kNoKey<C> && statistics[1] == 0) {
        write_zeros(grad_scores, keys, streamed);
        continue;
      }
      mask.enter(place, visible);
      factors.draw(arguments, first, count);
      const auto x = [&](int64_t i, int64_t n) C10_ALWAYS_INLINE_ATTRIBUTE {
        return mask.score(load(scores + i, n) * scale, i, n);
      };
      const Pack<T> sum(recomputed_sum<T>(x, counted_g, statistics[0], statistics[1],
                                          probabilities.data(), count));
      write(sum, [&](int64_t i, int64_t) C10_ALWAYS_INLINE_ATTRIBUTE {
        return Pack<T>::loadu(probabilities.data() + i);
      });
    } else {
      const T* output = static_cast<const T*>(arguments.output) + first;
      const int64_t next = row + 1 < end ? keys : 0;  // prefetched
      mask.enter(place, visible);
      const Pack<T> sum(sum_of<T>(count, [&](int64_t i, int64_t n) C10_ALWAYS_INLINE_ATTRIBUTE {
        return load(output + i, n) * counted_g(i, n);
      }));
      write(sum, [&](int64_t i, int64_t n) C10_ALWAYS_INLINE_ATTRIBUTE {
        __builtin_prefetch(gradients + next + i);
        __builtin_prefetch(output + next + i);
        return load(output + i, n);
      });
    }
  }
}

// Calls function(T(), the type of the mask) for the dtype and the mask of the arguments.
template <typename Function>
void dispatch_mask(const MaskedRows& rows, const Function& function) {
  dispatch(rows.dtype, [&](auto zero) {
    using T = decltype(zero);
    switch (rows.mask.kind) {
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

template <typename Arguments>
void forward_rows(const Arguments& arguments, int64_t begin, int64_t end) {
  dispatch_mask(arguments, [&](auto zero, auto mask) {
    using T = decltype(zero);
    using Mask = decltype(mask)::type;
    is_transposed(arguments) ? forward_transposed<T>(arguments, begin, end)
                             : forward<T, Mask>(arguments, begin, end);
  });
}

template <typename T, typename Mask, typename Arguments>
void backward_rows(const Arguments& arguments, int64_t begin, int64_t end) {
  is_transposed(arguments) ? backward_transposed<T>(arguments, begin, end)
                           : backward<T, Mask>(arguments, begin, end);
}

}  // namespace

void masked_rows_cpu(const MaskedSoftmaxArguments& arguments, int64_t begin, int64_t end) {
  forward_rows(arguments, begin, end);
}

void masked_rows_cpu(const MaskedSoftmaxBackwardArguments& arguments, int64_t begin, int64_t end) {
  dispatch(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    arguments.mask.kind == MaskKind::boolean
        ? backward_rows<T, BooleanMask<T>>(arguments, begin, end)
        : backward_rows<T, NoMask<T>>(arguments, begin, end);  // an additive mask has no part in it
  });
}

void masked_rows_cpu(const MaskedSoftmaxDropoutArguments& arguments, int64_t begin, int64_t end) {
  forward_rows(arguments, begin, end);
}

void masked_rows_cpu(const MaskedSoftmaxDropoutBackwardArguments& arguments, int64_t begin,
                     int64_t end) {
  dispatch_mask(arguments, [&](auto zero, auto mask) {
    backward_rows<decltype(zero), typename decltype(mask)::type>(arguments, begin, end);
  });
}

}  // namespace warpfuse::WARPFUSE_ISA
