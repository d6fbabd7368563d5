#include <vector>

#include "cached_attention_softmax/cached_attention_softmax.h"
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

template <typename T>
float dot(const T* a, const T* b, int64_t size) {
  Pack<T> total(0.0f);
  int64_t i = 0;
  for (; i + kPackSize<T> <= size; i += kPackSize<T>) {
    total = at::vec::fmadd(load<T>(a + i, kPackSize<T>), load<T>(b + i, kPackSize<T>), total);
  }
  float sum = 0;
  for (int vector = 0; vector < Pack<T>::size() / Vectorized<float>::size(); ++vector) {
    sum += at::vec::vec_reduce_all<float>(
        [](const Vectorized<float>& x, const Vectorized<float>& y) { return x + y; },
        total[vector]);
  }
  for (; i < size; ++i) {
    sum = std::fma(static_cast<float>(a[i]), static_cast<float>(b[i]), sum);
  }
  return sum;
}

/// A query's row of the output.
template <typename T>
void attend(const CachedAttentionArguments& a, int64_t batch, int64_t head, int64_t token,
            std::vector<float>& scores) {
  const int64_t position = position_of(a.positions, batch, token);
  const int64_t first = a.window > 0 && position >= a.window ? position - a.window + 1 : 0;
  const int64_t last = position + 1;  // below the slots: checked
  const int64_t key_head = head / (a.heads / a.key_heads);
  T* const output =
      static_cast<T*>(a.output) + ((batch * a.tokens + token) * a.heads + head) * a.head_dim;
  const T* const query = row_of<T>(a.query, batch, head, token);
  float max = kNegativeInfinity<float>, sum = 0;
  for (int64_t slot = first; slot < last; ++slot) {
    const float score =
        dot(query, row_of<T>(a.keys, batch, key_head, slot), a.head_dim) * a.scale;
    scores[slot - first] = score;
    max = score > max ? score : max;  // a NaN comes back through the sum
  }
  for (int64_t slot = first; slot < last; ++slot) {
    float& score = scores[slot - first];
    score = score == kNegativeInfinity<float> ? 0.0f : std::exp(score - max);
    sum += score;
  }
  const float inverse = sum == 0 ? 0.0f : 1 / sum;
  for (int64_t i = 0; i < a.head_dim; i += kPackSize<T>) {
    const int64_t count = std::min(kPackSize<T>, a.head_dim - i);
    Pack<T> total(0.0f);
    for (int64_t slot = first; slot < last; ++slot) {
      total = at::vec::fmadd(load<T>(row_of<T>(a.values, batch, key_head, slot) + i, count),
                             Pack<T>(scores[slot - first]), total);
    }
    store<T>(total * Pack<T>(inverse), output + i, count);
  }
}

template <typename T>
void attend_rows(const CachedAttentionArguments& a, int64_t begin, int64_t end) {
  std::vector<float> scores(a.slots);
  for (int64_t row = begin; row < end; ++row) {
    attend<T>(a, row / (a.heads * a.tokens), row / a.tokens % a.heads, row % a.tokens, scores);
  }
}

}  // namespace

void cached_attention_cpu(const CachedAttentionArguments& a, int64_t begin, int64_t end) {
  switch (a.dtype) {
    case DType::float32:
      return attend_rows<float>(a, begin, end);
    case DType::float16:
      return attend_rows<at::Half>(a, begin, end);
    default:
      return attend_rows<at::BFloat16>(a, begin, end);
  }
}

}  // namespace warpfuse::WARPFUSE_ISA
