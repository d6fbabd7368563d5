#pragma once

// Non-temporal stores. Only files that are compiled per instruction set include this.

#include <ATen/cpu/vec/vec.h>

#include <cstdint>
#include <type_traits>

#include "common/cpu_capability.h"
#include "rowwise/cpu/limits.h"

namespace warpfuse::WARPFUSE_ISA {

using at::vec::Vectorized;

/// A non-temporal store: it bypasses the caches and saves the read for ownership. `to` is aligned
/// to a vector.
template <typename T>
inline void stream(const Vectorized<T>& values, T* to) {
#if defined(CPU_CAPABILITY_AVX512)
  if constexpr (std::is_same_v<T, float>) {
    _mm512_stream_ps(to, values);
  } else if constexpr (std::is_same_v<T, double>) {
    _mm512_stream_pd(to, values);
  } else {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), values);
  }
#elif defined(CPU_CAPABILITY_AVX2)
  if constexpr (std::is_same_v<T, float>) {
    _mm256_stream_ps(to, values);
  } else if constexpr (std::is_same_v<T, double>) {
    _mm256_stream_pd(to, values);
  } else {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), values);
  }
#else
  values.store(to);
#endif
}

/// Whether the rows of a result are written with non-temporal stores. These are not ordered with
/// other stores; the destructor's fence orders them before the thread goes on.
class Streaming {
 public:
  Streaming(int64_t rows, int64_t row_bytes, const void* result)
      : on_(is_streamed(rows, row_bytes, result)) {}
  Streaming(const RowLayout& layout, int64_t element_bytes, const void* result)
      : on_(is_streamed(layout, element_bytes, result)) {}
  ~Streaming() {
#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
    if (on_) {
      _mm_sfence();
    }
#endif
  }
  Streaming(const Streaming&) = delete;
  Streaming& operator=(const Streaming&) = delete;

  bool on() const { return on_; }

 private:
  bool on_;
};

}  // namespace warpfuse::WARPFUSE_ISA
