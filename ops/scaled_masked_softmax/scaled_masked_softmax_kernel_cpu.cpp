#include "scaled_masked_softmax/scaled_masked_softmax_kernel_cpu.h"

#include <algorithm>
#include <vector>

#include "rowwise/cpu/backward.h"
#include "rowwise/cpu/dispatch.h"
#include "rowwise/cpu/forward.h"

namespace warpfuse::WARPFUSE_ISA {
namespace {

// One row of the mask: boolean or additive, read by its stride.
template <typename T>
class MaskRow {
 public:
  using C = Compute<T>;

  MaskRow(const MaskView& mask, const RowPlace& place)
      : mask_(mask), offset_(mask.row_offset(place)) {}

  bool hides(int64_t key) const { return !static_cast<const bool*>(mask_.data)[at(key)]; }

  /// Applies the mask to the scaled scores of [interval); returns whether any key is visible.
  bool apply(C* scores, const KeyInterval& interval) const {
    switch (mask_.kind) {
      case MaskKind::none:
        return interval.begin < interval.end;
      case MaskKind::boolean:
        return hide(scores, interval);
      case MaskKind::additive:
        return add(static_cast<const T*>(mask_.data), scores, interval);
      case MaskKind::additive_float32:
        return add(static_cast<const float*>(mask_.data), scores, interval);
    }
    return false;
  }

  /// Sets row[key] to zero where the boolean mask hides the key.
  template <typename E>
  void zero_hidden(E* row, const KeyInterval& interval) const {
    for (int64_t key = interval.begin; key < interval.end; ++key) {
      if (hides(key)) {
        row[key - interval.begin] = E(0);
      }
    }
  }

 private:
  int64_t at(int64_t key) const { return offset_ + key * mask_.key_stride; }

  bool hide(C* scores, const KeyInterval& interval) const {
    const C hidden = mask_.fills ? static_cast<C>(mask_.fill_value) : kLowest<C>;
    bool any = mask_.fills && interval.begin < interval.end;
    for (int64_t key = interval.begin; key < interval.end; ++key) {
      const bool visible = !hides(key);
      any |= visible;
      scores[key - interval.begin] = visible ? scores[key - interval.begin] : hidden;
    }
    return any;
  }

  template <typename M>
  bool add(const M* data, C* scores, const KeyInterval& interval) const {
    bool any = false;
    for (int64_t key = interval.begin; key < interval.end; ++key) {
      const C value = static_cast<C>(data[at(key)]);
      any |= value != kLowest<C>;
      scores[key - interval.begin] += value;
    }
    return any;
  }

  const MaskView& mask_;
  int64_t offset_;
};

template <typename T>
void forward(const MaskedSoftmaxArguments& arguments, int64_t begin, int64_t end) {
  using C = Compute<T>;
  using Vec = at::vec::Vectorized<C>;
  const int64_t keys = arguments.rules.keys;
  std::vector<C> scratch(keys);
  for (int64_t row = begin; row < end; ++row) {
    const T* scores = static_cast<const T*>(arguments.scores) + row * keys;
    T* output = static_cast<T*>(arguments.output) + row * keys;
    const RowPlace place = arguments.rules.place(row);
    const KeyInterval visible = arguments.rules.visible(place);
    const int64_t count = visible.end - visible.begin;
    const MaskRow<T> mask(arguments.mask, place);

    std::fill(output, output + visible.begin, T(0));
    std::fill(output + visible.end, output + keys, T(0));
    if constexpr (std::is_same_v<T, C>) {
      transform(scratch.data(), count, [&](int64_t i, int64_t n) {
        return load(scores + visible.begin + i, n) * Vec(C(arguments.scale));
      });
    } else {
      convert(scores + visible.begin, scratch.data(), count);
      transform(scratch.data(), count, [&](int64_t i, int64_t n) {
        return load(scratch.data() + i, n) * Vec(C(arguments.scale));
      });
    }
    T* result = output + visible.begin;
    if (!mask.apply(scratch.data(), visible)) {
      std::fill(result, result + count, T(0));
      continue;
    }
    const C sum = softmax_row<T, false>(scratch.data(), result, scratch.data(), count);
    const bool sound = sum > 0 && sum < std::numeric_limits<C>::infinity();
    if (!sound && arguments.mask.kind == MaskKind::boolean && !arguments.mask.fills) {
      mask.zero_hidden(result, visible);  // NaN belongs to the visible keys alone
    }
  }
}

template <typename T>
void backward(const MaskedSoftmaxBackwardArguments& arguments, int64_t begin, int64_t end) {
  using C = Compute<T>;
  const int64_t keys = arguments.rules.keys;
  const bool boolean = arguments.mask.kind == MaskKind::boolean;
  std::vector<C> g(keys), y(keys);
  for (int64_t row = begin; row < end; ++row) {
    const RowPlace place = arguments.rules.place(row);
    const KeyInterval visible = arguments.rules.visible(place);
    const int64_t count = visible.end - visible.begin;
    const int64_t first = row * keys + visible.begin;
    const MaskRow<T> mask(arguments.mask, place);
    T* grad_scores = static_cast<T*>(arguments.grad_scores) + row * keys;

    convert(static_cast<const T*>(arguments.grad_output) + first, g.data(), count);
    convert(static_cast<const T*>(arguments.output) + first, y.data(), count);
    if (boolean && !arguments.mask.fills) {
      mask.zero_hidden(g.data(), visible);  // what comes for a hidden key must not reach the sum
    }
    softmax_backward_row<C, false>(g.data(), y.data(), g.data(), C(arguments.scale), count);
    if (boolean) {
      mask.zero_hidden(g.data(), visible);
    }
    std::fill(grad_scores, grad_scores + visible.begin, T(0));
    convert(g.data(), grad_scores + visible.begin, count);
    std::fill(grad_scores + visible.end, grad_scores + keys, T(0));
  }
}

}  // namespace

void masked_softmax_rows_cpu(const MaskedSoftmaxArguments& arguments, int64_t begin, int64_t end) {
  dispatch(arguments.dtype, [&](auto zero) { forward<decltype(zero)>(arguments, begin, end); });
}

void masked_softmax_backward_rows_cpu(const MaskedSoftmaxBackwardArguments& arguments,
                                      int64_t begin, int64_t end) {
  dispatch(arguments.dtype, [&](auto zero) { backward<decltype(zero)>(arguments, begin, end); });
}

}  // namespace warpfuse::WARPFUSE_ISA
