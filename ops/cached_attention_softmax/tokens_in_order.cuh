#pragma once

#include <climits>

#include "cached_attention_softmax/attend_rows.cuh"

namespace warpfuse::cuda {

/// Whether the tokens of a row of the batch have neighbouring slots, in order, and see all slots
/// before. Their positions are on their way while other things are done.
template <int kThreads>
class TokensInOrder {
 public:
  __device__ TokensInOrder(const CachedAttentionArguments& a, int batch) : a_(a), batch_(batch) {
    if (a.positions.is_int64) {
      load<int64_t>();
    } else {
      load<int32_t>();
    }
  }

  /// The slot of the first token.
  __device__ int first_slot() const { return static_cast<int>(first_); }

  /// By all threads of the block.
  __device__ bool check() const {
    const int64_t end = first_ + a_.tokens;
    bool in_order = first_ >= 0 && end <= min(a_.slots, int64_t{INT_MAX}) &&
                    (a_.window == 0 || a_.window >= end);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      in_order &= ahead_[i] == first_ + token(i) || token(i) >= a_.tokens;
    }
    for (int i = kAhead; token(i) < a_.tokens; ++i) {
      in_order &= load_position(a_.positions, batch_, token(i)) == first_ + token(i);
    }
    return __syncthreads_and(in_order) != 0;
  }

 private:
  static constexpr int kAhead = 4;

  __device__ static int token(int i) { return static_cast<int>(threadIdx.x) + i * kThreads; }

  template <typename Position>
  __device__ __forceinline__ void load() {
    const auto* const row = static_cast<const volatile Position*>(a_.positions.data) +
                            batch_ * a_.positions.batch_stride;
    first_ = row[0];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      ahead_[i] = token(i) < a_.tokens ? row[token(i) * a_.positions.token_stride] : 0;
    }
  }

  const CachedAttentionArguments& a_;
  int batch_;
  int64_t first_, ahead_[kAhead];
};

}  // namespace warpfuse::cuda
