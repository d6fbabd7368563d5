#pragma once

#include "gpt2_step/step_matrices.cuh"

namespace warpfuse::cuda {

// What the blocks hand to one another goes through global memory without a barrier: every 4-byte
// word is absent, a NaN that no instruction computes, until its value is stored, and a reader loads
// it again until it is there. The words of a step are written once each.

inline constexpr unsigned kAbsent = 0xffffffffu;

/// Where they lie: the embeddings [rows, width], and the values of each layer, [rows, ..] each.
template <typename T>
struct StepValues {
  const Gpt2StepArguments& a;
  T* embeddings;

  struct Layer {
    T* qkv;     // [H, 3, D]
    T* heads;   // what attention returns
    T* middle;  // behind the first residual connection
    T* inner;
    T* output;  // behind the second
  };

  __host__ __device__ Layer layer(int index) const {
    const int row = a.rows * a.width;
    T* const first = embeddings + row + index * a.rows * (6 * a.width + a.inner);
    T* const inner = first + 5 * row;
    return {first, first + 3 * row, first + 4 * row, inner, inner + a.rows * a.inner};
  }
  /// What layer `index` begins with.
  __device__ T* input(int index) const { return index > 0 ? layer(index - 1).output : embeddings; }
  __host__ __device__ T* end() const { return layer(a.layers).qkv; }
};

/// A volatile load in the L2 cache, where other blocks' stores appear.
__device__ __forceinline__ void load_shared_value_if(bool wanted, const void* address,
                                                     uint4& bits) {
  asm volatile(
      "{\n"
      ".reg .pred wanted;\n"
      "setp.ne.u32 wanted, %5, 0;\n"
      "@wanted ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];\n"
      "}"
      : "+r"(bits.x), "+r"(bits.y), "+r"(bits.z), "+r"(bits.w)
      : "l"(address), "r"(static_cast<unsigned>(wanted))
      : "memory");
}

__device__ __forceinline__ bool is_present(const uint4& bits) {
  return bits.x != kAbsent && bits.y != kAbsent && bits.z != kAbsent && bits.w != kAbsent;
}

/// Waits for the packs address_of(i) where wanted(i), all at a time; others are zeros.
template <int kCount, typename Wanted, typename AddressOf>
__device__ __forceinline__ void await(uint4 (&bits)[kCount], const Wanted& wanted,
                                      const AddressOf& address_of) {
  bool all_present;
  do {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      bits[i] = {};
      load_shared_value_if(wanted(i), address_of(i), bits[i]);
    }
    all_present = true;
#pragma unroll
    for (const uint4& each : bits) {
      all_present = all_present && is_present(each);
    }
  } while (!all_present);
}

/// The word that holds an element.
template <typename T>
__device__ __forceinline__ unsigned load_word(const T* element) {
  unsigned word;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];"
               : "=r"(word)
               : "l"(reinterpret_cast<uintptr_t>(element) & ~uintptr_t{3})
               : "memory");
  return word;
}

/// The element of its word.
template <typename T>
__device__ __forceinline__ float element_of(unsigned word, const T* element) {
  if constexpr (sizeof(T) == 4) {
    return __uint_as_float(word);
  } else {
    float both[2];
    unpack_word(word, both, T());
    return reinterpret_cast<uintptr_t>(element) / 2 % 2 == 0 ? both[0] : both[1];
  }
}

template <typename T>
__device__ __forceinline__ float await_element(const T* element) {
  unsigned word;
  do {
    word = load_word(element);
  } while (word == kAbsent);
  return element_of(word, element);
}

/// Stores neighbouring elements, one per lane: by all lanes of a warp, of which those with an even
/// index store pairs of half precision.
template <typename T>
__device__ __forceinline__ void publish(bool wanted, T* address, float value) {
  unsigned word = __float_as_uint(value);
  if constexpr (sizeof(T) == 2) {
    const float pair[] = {value, __shfl_down_sync(~0u, value, 1)};
    word = pack_word(pair, T());
    wanted = wanted && threadIdx.x % 2 == 0;
  }
  word = min(word, kAbsent - 1);  // another NaN
  if (wanted) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(word) : "memory");
  }
}

}  // namespace warpfuse::cuda
