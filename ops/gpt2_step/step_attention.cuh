#pragma once

#include "cached_attention_softmax/attend_rows.cuh"
#include "gpt2_step/step_input.cuh"

namespace warpfuse::cuda {

/// Attention of one head of one row, by a block, whose warps share the visible slots. Keys and
/// values of the first ones arrive while the query is computed elsewhere.
template <typename T>
class StepAttention {
 public:
  __device__ StepAttention(const Gpt2StepArguments& a, StepShared& shared, int layer, int row,
                           int head)
      : a_(a),
        shared_(shared),
        position_(shared.positions[row]),
        visible_(min(position_ + 1, a.slots)),
        keys_(static_cast<T*>(a.cache) + layer * a.cache_strides[0] + row * a.cache_strides[2] +
              head * a.cache_strides[3] + pack() * kPack<T>) {}

  /// `qkv` and `result` are those of the head.
  __device__ __forceinline__ void run(const T* qkv, T* result) {
    uint4 keys[kSlotsAhead], values[kSlotsAhead];
    load(0, keys, values);
    uint4 token[3];  // query, key and value of the new one
    await<3>(
        token, [](int) { return true; },
        [&](int i) { return qkv + i * a_.head_dim + pack() * kPack<T>; });
    const auto& [query, key, value] = token;
    if (step_warp() == 0 && position_ >= 0 && position_ < a_.slots && group() == 0) {
      store_16_bytes(key_of(position_), key);
      store_16_bytes(value_of(position_), value);
    }
    float scaled[kPack<T>];
    unpack<T>(query, scaled);
#pragma unroll
    for (float& element : scaled) {
      element *= a_.scale;
    }
    Attended<T> attended;
    const int step = kSlotsAhead * kStepWarps * groups();
    for (int first = 0; first < visible_; first += step) {
      float scores[kSlotsAhead], largest = attended.max;
#pragma unroll
      for (int i = 0; i < kSlotsAhead; ++i) {
        const int slot = slot_of(first, i);
        keys[i] = slot == position_ ? key : keys[i];
        values[i] = slot == position_ ? value : values[i];
        scores[i] = dot(scaled, keys[i]);
        scores[i] = slot < visible_ ? scores[i] : -INFINITY;
        largest = larger(largest, scores[i]);
      }
      attended.scale_to(largest);
#pragma unroll
      for (int i = 0; i < kSlotsAhead; ++i) {
        attended.add(scores[i], values[i]);
      }
      if (first + step < visible_) {
        load(first + step, keys, values);
      }
    }
    for (int offset = packs(); offset < 32; offset *= 2) {
      attended.join_lanes(offset);
    }
    store_partial(attended);
    sync_step_warps();
    publish_result(result);
    sync_step_warps();  // before the next head's partials
  }

 private:
  __device__ int packs() const { return a_.head_dim / kPack<T>; }  // a power of two
  __device__ int pack() const { return static_cast<int>(threadIdx.x) % 32 & (packs() - 1); }
  // Groups of lanes of a warp have a slot each.
  __device__ int groups() const { return 32 / packs(); }
  __device__ int group() const { return static_cast<int>(threadIdx.x) % 32 / packs(); }
  __device__ int slot_of(int first, int ahead) const {
    return first + (ahead * kStepWarps + step_warp()) * groups() + group();
  }
  __device__ T* key_of(int slot) const { return keys_ + slot * a_.cache_strides[4]; }
  __device__ T* value_of(int slot) const { return key_of(slot) + a_.cache_strides[1]; }

  __device__ __forceinline__ void load(int first, uint4 (&keys)[kSlotsAhead],
                                       uint4 (&values)[kSlotsAhead]) const {
#pragma unroll
    for (int i = 0; i < kSlotsAhead; ++i) {
      const int slot = slot_of(first, i);
      const bool wanted = slot < visible_ && slot != position_;
      keys[i] = values[i] = {};
      load_16_bytes_if(wanted, key_of(slot), keys[i]);
      load_16_bytes_if(wanted, value_of(slot), values[i]);
    }
  }

  /// Of the query and a key, over the lanes of a slot.
  __device__ __forceinline__ float dot(const float (&query)[kPack<T>], const uint4& bits) const {
    float key[kPack<T>], sum = 0;
    unpack<T>(bits, key);
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      sum = fmaf(query[i], key[i], sum);
    }
    // Without branches, so that the slots' sums are in flight together.
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
      const float other = __shfl_xor_sync(~0u, sum, offset);
      sum += offset < packs() ? other : 0.0f;
    }
    return sum;
  }

  __device__ __forceinline__ void store_partial(const Attended<T>& attended) const {
    StepPartial& partial = shared_.attended[step_warp()];
    if (group() == 0) {
      partial.max = attended.max;
      partial.sum = attended.sum;
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) {
        partial.values[pack() * kPack<T> + i] = attended.values[i];
      }
    }
  }

  __device__ __forceinline__ void publish_result(T* result) const {
    if (step_warp() * 32 < a_.head_dim) {
      const int element = static_cast<int>(threadIdx.x);
      const AttendedElement all([&](int i) { return &shared_.attended[i]; }, kStepWarps, element);
      publish(element < a_.head_dim, result + element,
              position_ < 0 ? 0.0f : __fdividef(all.value, all.sum));
    }
  }

  const Gpt2StepArguments& a_;
  StepShared& shared_;
  int position_, visible_;
  T* keys_;
};

}  // namespace warpfuse::cuda
