#include "scaled_masked_softmax/scaled_masked_softmax_kernel_cpu.h"

#include "rowwise/cpu/backward.h"
#include "rowwise/cpu/dispatch.h"
#include "rowwise/cpu/forward.h"
#include "rowwise/cpu/mask.h"

namespace warpfuse::WARPFUSE_ISA {
namespace {

template <typename T, typename Mask>
void forward(const MaskedSoftmaxArguments& arguments, int64_t begin, int64_t end) {
  using C = Compute<T>;
  const int64_t keys = arguments.rules.keys;
  const Streaming streaming(arguments.rows, keys * int64_t{sizeof(T)});
  const bool streamed = streaming.on();
  const Scratch<T> scratch(keys);
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
    const C max = max_of<T>(count, x);
    if (max > kLowest<C> || mask.shows_any()) {
      T* result = output + visible.begin;
      const C sum = softmax_row<T>(x, max, result, scratch.data(), count, streamed,
                                   row + 1 < end ? scores + keys : scores);
      if (!(sum > 0 && sum < std::numeric_limits<C>::infinity())) {
        mask.zero_hidden(result);  // NaN belongs to the visible keys alone
      }
    } else {
      write_zeros(output + visible.begin, count, streamed);
    }
    write_zeros(output + visible.end, keys - visible.end, streamed);
  }
}

template <typename T, typename Mask>
void backward(const MaskedSoftmaxBackwardArguments& arguments, int64_t begin, int64_t end) {
  using Rule = BackwardRule<false>;
  const int64_t keys = arguments.rules.keys;
  Mask mask(arguments.mask, keys);
  const Streaming streaming(arguments.rows, keys * int64_t{sizeof(T)});
  const bool streamed = streaming.on();
  const Pack<T> scale(static_cast<Compute<T>>(arguments.scale));
  for (int64_t row = begin; row < end; ++row) {
    const RowPlace place = arguments.rules.place(row);
    const KeyInterval visible = arguments.rules.visible(place);
    const int64_t count = visible.end - visible.begin;
    const int64_t first = row * keys + visible.begin;
    const T* g = static_cast<const T*>(arguments.grad_output) + first;
    const T* y = static_cast<const T*>(arguments.output) + first;
    T* grad_scores = static_cast<T*>(arguments.grad_scores) + row * keys;
    const int64_t ahead = row + 1 < end ? keys : 0;  // the next row, fetched now, is not waited for
    mask.enter(place, visible);

    const Pack<T> sum(sum_of<T>(count, [&](int64_t i, int64_t n) C10_ALWAYS_INLINE_ATTRIBUTE {
      return Rule::term(mask.incoming(load(g + i, n), i, n), load(y + i, n));
    }));
    write_zeros(grad_scores, visible.begin, streamed);
    transform(grad_scores + visible.begin, count, streamed,
              [&](int64_t i, int64_t n) C10_ALWAYS_INLINE_ATTRIBUTE {
                __builtin_prefetch(g + ahead + i);
                __builtin_prefetch(y + ahead + i);
                const Pack<T> gradients = Rule::result(load(g + i, n), load(y + i, n), sum) * scale;
                return mask.outgoing(gradients, i, n);
              });
    write_zeros(grad_scores + visible.end, keys - visible.end, streamed);
  }
}

}  // namespace

void masked_softmax_rows_cpu(const MaskedSoftmaxArguments& arguments, int64_t begin, int64_t end) {
  dispatch(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    switch (arguments.mask.kind) {
      case MaskKind::none:
        return forward<T, NoMask<T>>(arguments, begin, end);
      case MaskKind::boolean:
        return forward<T, BooleanMask<T>>(arguments, begin, end);
      case MaskKind::additive:
        return forward<T, AdditiveMask<T, T>>(arguments, begin, end);
      case MaskKind::additive_float32:
        return forward<T, AdditiveMask<T, float>>(arguments, begin, end);
    }
  });
}

void masked_softmax_backward_rows_cpu(const MaskedSoftmaxBackwardArguments& arguments,
                                      int64_t begin, int64_t end) {
  dispatch(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    arguments.mask.kind == MaskKind::boolean
        ? backward<T, BooleanMask<T>>(arguments, begin, end)
        : backward<T, NoMask<T>>(arguments, begin, end);  // what was added has no part in it
  });
}

}  // namespace warpfuse::WARPFUSE_ISA
