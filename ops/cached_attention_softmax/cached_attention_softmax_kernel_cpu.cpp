#include <vector>

#include "cached_attention_softmax/cached_attention_softmax.h"
#include "rowwise/cpu/dispatch.h"
#include "rowwise/cpu/vector.h"

namespace warpfuse::WARPFUSE_ISA {
namespace {

template <typename T>
const T* row_of(const HeadRows<const void*>& rows, int64_t batch, int64_t head, int64_t row) {
  return static_cast<const T*>(rows.data) + rows.offset(batch, head, row);
}
template <typename T>
const T* row_of(const HeadRows<void*>& rows, int64_t batch, int64_t head, int64_t row) {
  return static_cast<const T*>(rows.data) + rows.offset(batch, head, row);
}

using Floats = Vectorized<float>;
constexpr int64_t kFloats = Floats::size();

/// Tokens whose scores and outputs are computed together, so that a key or value is loaded once.
constexpr int kTokenGroup = 4;

/// The slots that a token sees.
struct Slots {
  int64_t first = 0, last = 0;

  Slots() = default;
  Slots(const CachedAttentionArguments& a, int64_t batch, int64_t token) {
    const int64_t position = position_of(a.positions, batch, token);  // below the slots: checked
    last = std::max<int64_t>(position + 1, 0);
    first = a.window > 0 && last > a.window ? last - a.window : 0;
  }
};

template <typename T>
C10_ALWAYS_INLINE float sum_of(const Pack<T>& pack) {
  Floats sum = pack[0];
  if constexpr (!std::is_same_v<T, float>) {
    sum = sum + pack[1];
  }
  return at::vec::vec_reduce_all<float>([](const Floats& x, const Floats& y) { return x + y; },
                                        sum);
}

/// kCount tokens of a head. Their scores, of `room` slots each, become probabilities.
template <typename T, int kCount>
struct TokenGroup {
  const CachedAttentionArguments& a;
  int64_t batch, head, token;
  float* scores;  // [kCount, room]
  int64_t room;
  int64_t key_head = head / (a.heads / a.key_heads);
  Slots slots[kCount] = {}, common = {};

  void attend() {
    for (int i = 0; i < kCount; ++i) {
      slots[i] = Slots(a, batch, token + i);
      common.first = i == 0 ? slots[0].first : std::max(common.first, slots[i].first);
      common.last = i == 0 ? slots[0].last : std::min(common.last, slots[i].last);
    }
    common.last = std::max(common.first, common.last);
    each_part([&](auto count, int first, int64_t begin, int64_t end) {
      score<decltype(count)::value>(first, begin, end);
    });
    float inverse[kCount];
    for (int i = 0; i < kCount; ++i) {
      inverse[i] = softmax(scores + i * room, slots[i]);
    }
    for (int64_t element = 0; element < a.head_dim; element += kPackSize<T>) {
      const int64_t count = std::min(kPackSize<T>, a.head_dim - element);
      Pack<T> totals[kCount];
      std::fill_n(totals, kCount, Pack<T>(0.0f));
      each_part([&](auto tokens, int first, int64_t begin, int64_t end) {
        add_values<decltype(tokens)::value>(element, count, begin, end, first, totals);
      });
      for (int i = 0; i < kCount; ++i) {
        store<T>(totals[i] * Pack<T>(inverse[i]), output(i) + element, count);
      }
    }
  }

 private:
  /// function(number of tokens, first token, slots): those that all tokens see together, and the
  /// rest of each token, which others must not touch.
  template <typename Function>
  C10_ALWAYS_INLINE void each_part(const Function& function) const {
    function(std::integral_constant<int, kCount>(), 0, common.first, common.last);
    for (int i = 0; kCount > 1 && i < kCount; ++i) {
      constexpr std::integral_constant<int, 1> kOne;
      function(kOne, i, slots[i].first, std::min(common.first, slots[i].last));
      function(kOne, i, std::max(common.last, slots[i].first), slots[i].last);
    }
  }

  T* output(int i) const {
    return static_cast<T*>(a.output) +
           ((batch * a.tokens + token + i) * a.heads + head) * a.head_dim;
  }

  template <int kTokens>
  C10_ALWAYS_INLINE void score(int first, int64_t begin, int64_t end) const {
    const T* queries[kTokens];
    for (int i = 0; i < kTokens; ++i) {
      queries[i] = row_of<T>(a.query, batch, head, token + first + i);
    }
    for (int64_t slot = begin; slot < end; ++slot) {
      const T* const key = row_of<T>(a.keys, batch, key_head, slot);
      Pack<T> totals[kTokens];
#pragma GCC unroll 4  // so that sums stay in registers
      for (int i = 0; i < kTokens; ++i) {
        totals[i] = Pack<T>(0.0f);
      }
      int64_t element = 0;
      for (; element + kPackSize<T> <= a.head_dim; element += kPackSize<T>) {
        const Pack<T> k = load<T>(key + element, kPackSize<T>);
#pragma GCC unroll 4
        for (int i = 0; i < kTokens; ++i) {
          totals[i] = at::vec::fmadd(load<T>(queries[i] + element, kPackSize<T>), k, totals[i]);
        }
      }
      float sums[kTokens];
#pragma GCC unroll 4
      for (int i = 0; i < kTokens; ++i) {
        sums[i] = sum_of<T>(totals[i]);
      }
      for (int i = 0; i < kTokens; ++i) {
        for (int64_t k = element; k < a.head_dim; ++k) {
          sums[i] =
              std::fma(static_cast<float>(queries[i][k]), static_cast<float>(key[k]), sums[i]);
        }
        scores[(first + i) * room + slot] = sums[i] * a.scale;
      }
    }
  }

  /// Scores become powers; returns what makes their sum 1, or 0 where nothing is seen.
  static float softmax(float* scores, const Slots& seen) {
    std::fill_n(scores + seen.last, kFloats, kNegativeInfinity<float>);
    Floats largest(kNegativeInfinity<float>), sums(0.0f);
    for (int64_t slot = seen.first; slot < seen.last; slot += kFloats) {
      const Floats x = Floats::loadu(scores + slot);
      largest = Floats::blendv(largest, x, x > largest);  // a NaN comes back through the sum
    }
    const auto max = at::vec::vec_reduce_all<float>(
        [](const Floats& x, const Floats& y) { return Floats::blendv(x, y, y > x); }, largest);
    const Floats shift(max == kNegativeInfinity<float> ? 0.0f : max);
    for (int64_t slot = seen.first; slot < seen.last; slot += kFloats) {
      const Floats power = (Floats::loadu(scores + slot) - shift).exp();
      power.store(scores + slot);
      sums = sums + power;
    }
    const float sum = sum_of<float>(Pack<float>(sums));
    return sum == 0 ? 0.0f : 1 / sum;
  }

  template <int kTokens>
  C10_ALWAYS_INLINE void add_values(int64_t element, int64_t count, int64_t begin, int64_t end,
                                    int first, Pack<T> (&totals)[kCount]) const {
    Pack<T> sums[kTokens];
#pragma GCC unroll 4  // so that sums stay in registers
    for (int i = 0; i < kTokens; ++i) {
      sums[i] = totals[first + i];
    }
    for (int64_t slot = begin; slot < end; ++slot) {
      const Pack<T> v = load<T>(row_of<T>(a.values, batch, key_head, slot) + element, count);
#pragma GCC unroll 4
      for (int i = 0; i < kTokens; ++i) {
        sums[i] = at::vec::fmadd(v, Pack<T>(scores[(first + i) * room + slot]), sums[i]);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kTokens; ++i) {
      totals[first + i] = sums[i];
    }
  }
};

template <typename T>
void attend_rows(const CachedAttentionArguments& a, int64_t begin, int64_t end) {
  const int64_t room = a.slots + kFloats;
  std::vector<float> scores(kTokenGroup * room);
  for (int64_t row = begin; row < end;) {
    const int64_t batch = row / (a.heads * a.tokens), head = row / a.tokens % a.heads,
                  token = row % a.tokens;
    if (std::min(a.tokens - token, end - row) >= kTokenGroup) {
      TokenGroup<T, kTokenGroup>{a, batch, head, token, scores.data(), room}.attend();
      row += kTokenGroup;
    } else {
      TokenGroup<T, 1>{a, batch, head, token, scores.data(), room}.attend();
      ++row;
    }
  }
}

}  // namespace

void cached_attention_cpu(const CachedAttentionArguments& a, int64_t begin, int64_t end) {
  dispatch_narrow(a.dtype, [&](auto zero) { attend_rows<decltype(zero)>(a, begin, end); });
}

}  // namespace warpfuse::WARPFUSE_ISA
