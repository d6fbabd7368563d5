#pragma once

// Vectors of the CPU row kernels. Only files that are compiled per instruction set include this.

#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>
#include <c10/macros/Macros.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numbers>
#include <type_traits>

#include "common/cpu_capability.h"
#include "rowwise/cpu/streaming.h"

namespace warpfuse::WARPFUSE_ISA {

using at::vec::Vectorized;

/// The bytes of a vector register, or 0 where Vectorized is an array.
#if defined(CPU_CAPABILITY_AVX2) || defined(CPU_CAPABILITY_AVX512)
constexpr int64_t kRegisterBytes = sizeof(Vectorized<float>);
#else
constexpr int64_t kRegisterBytes = 0;
#endif

/// The type in which T is computed: double for double, else float.
template <typename T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename C>
constexpr C kNegativeInfinity = -std::numeric_limits<C>::infinity();

/// The elements of one vector of T in the compute type: two vectors for half types.
template <typename T>
using Pack =
    at::vec::VectorizedN<Compute<T>, Vectorized<T>::size() / Vectorized<Compute<T>>::size()>;

template <typename T>
constexpr int64_t kPackSize = Pack<T>::size();

// --- memory -----------------------------------------------------------------------------------

/// from[0, count) in the compute type. The rest of a short pack (count < kPackSize) is undefined.
template <typename T>
inline Pack<T> load(const T* from, int64_t count) {
  Vectorized<T> values;
  if (count == kPackSize<T>) {
    values = Vectorized<T>::loadu(from);
  } else if (count > 0 && count < kPackSize<T>) {
    values = Vectorized<T>::loadu(from, count);
  }
  if constexpr (std::is_same_v<T, Compute<T>>) {
    return values;
  } else {
    return at::vec::convert<float, 2, T, 1>(at::vec::VectorizedN<T, 1>(values));
  }
}

/// The pack rounded once to T.
template <typename T>
inline Vectorized<T> rounded(const Pack<T>& pack) {
  if constexpr (std::is_same_v<T, Compute<T>>) {
    return pack[0];
  } else {
    return at::vec::convert<T, 1, float, 2>(pack);
  }
}

template <typename T>
inline void store(const Pack<T>& pack, T* to, int64_t count) {
  if (count == kPackSize<T>) {
    rounded<T>(pack).store(to);
  } else if (count > 0 && count < kPackSize<T>) {
    rounded<T>(pack).store(to, static_cast<int>(count));
  }
}

/// Prefetches what lies `distance` bytes, prefetch_distance(), behind `from`: nothing if that is 0.
template <typename T>
C10_ALWAYS_INLINE void prefetch_ahead(const T* from, int64_t distance) {
  if (distance > 0) {
    __builtin_prefetch(reinterpret_cast<const char*>(from) + distance);
  }
}

/// Room for a row of whole packs in the compute type.
template <typename T>
class Scratch {
 public:
  explicit Scratch(int64_t count)
      : values_(std::make_unique_for_overwrite<Compute<T>[]>(count + kPackSize<T>)) {}
  Compute<T>* data() const { return values_.get(); }

 private:
  std::unique_ptr<Compute<T>[]> values_;
};

/// The first `count` elements of a, then those of b.
template <typename P>
C10_ALWAYS_INLINE P blend_first(const P& a, int64_t count, const P& b) {
  using C = P::value_type;
  return P::blendv(b, a, P::arange(C(0), C(1)) < P(static_cast<C>(count)));
}

// --- groups of rows ---------------------------------------------------------------------------

/// Maximum number of rows that are processed together.
constexpr int64_t kRowGroup = 16;

/// The rows of T in a group of at most `group_bytes`.
template <typename T>
int64_t group_rows(int64_t columns, int64_t group_bytes) {
  return std::clamp<int64_t>(group_bytes / (columns * int64_t{sizeof(T)}), 1, kRowGroup);
}

/// Calls function(row, rows) for the rows [begin, end) in groups of `group` rows.
template <typename Function>
void for_row_groups(int64_t begin, int64_t end, int64_t group, const Function& function) {
  for (int64_t row = begin; row < end; row += group) {
    function(row, std::min(group, end - row));
  }
}

// --- loops over a row -------------------------------------------------------------------------
// The tail of a row is processed as a full pack that overlaps the one before it, which is faster
// than a short pack. Only rows shorter than a pack use a short one.
//
// A map returns the pack of elements [i, i + n) for (i, n), n at most kPackSize. The loops are
// inlined, so that captured values of their maps stay in registers.

/// to[i] = map(i-th pack) over [0, count).
template <typename T, typename Map>
C10_ALWAYS_INLINE void transform(T* to, int64_t count, bool streamed, const Map& map) {
  constexpr int64_t kSize = kPackSize<T>;
  int64_t i = 0;
  if (streamed) {
    const int64_t misaligned = reinterpret_cast<uintptr_t>(to) / sizeof(T) % kSize;
    if (misaligned != 0) {
      i = std::min(count, kSize - misaligned);
      store<T>(map(0, i), to, i);
    }
    for (; i + kSize <= count; i += kSize) {
      stream<T>(rounded<T>(map(i, kSize)), to + i);
    }
  } else {
#pragma GCC unroll 2
    for (; i + kSize <= count; i += kSize) {
      store<T>(map(i, kSize), to + i, kSize);
    }
  }
  if (i < count && count >= kSize) {
    store<T>(map(count - kSize, kSize), to + count - kSize, kSize);
  } else if (i < count) {
    store<T>(map(i, count - i), to + i, count - i);
  }
}

/// The packs of [begin, end) combined with each other and `start`, which also fills up the last
/// pack. Four independent chains hide the latency of a combination.
template <typename T, typename Combine, typename Map>
C10_ALWAYS_INLINE Pack<T> fold(int64_t begin, int64_t end, const Pack<T>& start,
                               const Combine& combine, const Map& map) {
  constexpr int64_t kSize = kPackSize<T>;
  constexpr int kChains = 4 * sizeof(Vectorized<T>) / sizeof(Pack<T>);
  Pack<T> results[kChains];
  std::fill_n(results, kChains, start);
  int64_t i = begin;
  for (; i + kChains * kSize <= end; i += kChains * kSize) {
#pragma GCC unroll 4
    for (int chain = 0; chain < kChains; ++chain) {
      results[chain] = combine(results[chain], map(i + chain * kSize, kSize));
    }
  }
  for (; i + kSize <= end; i += kSize) {
    results[0] = combine(results[0], map(i, kSize));
  }
  if (i < end && end >= kSize) {
    const Pack<T> last = map(end - kSize, kSize);
    results[1] = combine(results[1], blend_first(start, kSize - (end - i), last));
  } else if (i < end) {
    results[1] = combine(results[1], blend_first(map(i, end - i), end - i, start));
  }
  for (int chain = 1; chain < kChains; ++chain) {
    results[0] = combine(results[0], results[chain]);
  }
  return results[0];
}

/// The larger one, or a where b is NaN.
template <typename P>
inline P larger(const P& a, const P& b) {
  return at::vec::clamp_min(a, b);
}

/// The largest element of a row. It may drop a NaN, which the sum brings back.
template <typename T, typename Map>
C10_ALWAYS_INLINE Compute<T> max_of(int64_t count, const Map& map) {
  const auto combine = [](const auto& a, const auto& b) { return larger(a, b); };
  return at::vec::vec_reduce_all(
      combine, fold<T>(0, count, Pack<T>(kNegativeInfinity<Compute<T>>), combine, map));
}

/// The sum of a row's elements, in blocks, so that rounding errors do not grow with their number.
template <typename T, typename Map>
C10_ALWAYS_INLINE Compute<T> sum_of(int64_t count, const Map& map) {
  constexpr int64_t kBlock = 128 * kPackSize<T>;
  const auto add = [](const auto& a, const auto& b) { return a + b; };
  const Pack<T> zero(Compute<T>(0));
  Pack<T> sum = zero;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    sum = sum + fold<T>(begin, std::min(begin + kBlock, count), zero, add, map);
  }
  return at::vec::vec_reduce_all(add, sum);
}

// --- the exponential --------------------------------------------------------------------------

/// e^x with a relative error of at most 2^-23 for x <= 0, subnormal results included. Infinite from
/// 72.4 on, which no softmax reaches.
C10_ALWAYS_INLINE Vectorized<float> exponential(const Vectorized<float>& x) {
  using Vec = Vectorized<float>;
  // x = n ln 2 + r. Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits; with
  // 127 + 24 in it these are the exponent of 2^(n + 24), or of 0 where n is -151, the least. NaN
  // passes through r.
  const Vec rounder(12582912.0F + 127.0F + 24.0F);
  const Vec inside = at::vec::clamp(x, Vec(-104.7F), Vec(72.1F));
  const Vec shifted = at::vec::fmadd(inside, Vec(std::numbers::log2e_v<float>), rounder);
  const Vec n = shifted - rounder;
  // ln 2 is 355/512 and a little less; the former times n is exact.
  const Vec r =
      at::vec::fmadd(n, Vec(2.12194440e-4F), at::vec::fmadd(n, Vec(-355.0F / 512.0F), inside));
  Vec power(0.00138145406F);
  for (const float coefficient :
       {0.00836874545F, 0.0416683890F, 0.166665211F, 0.49999994F, 1.0F, 1.0F}) {
    power = at::vec::fmadd(power, r, Vec(coefficient));
  }
  const auto exponent = at::vec::cast<int32_t>(shifted) << Vectorized<int32_t>(23);
  return power * at::vec::cast<float>(exponent) * Vec(0x1p-24F);
}

inline Vectorized<double> exponential(const Vectorized<double>& x) { return x.exp(); }

template <typename C, int N>
inline at::vec::VectorizedN<C, N> exponential(const at::vec::VectorizedN<C, N>& x) {
  return x.unary_op([](const Vectorized<C>& vector) { return exponential(vector); });
}

}  // namespace warpfuse::WARPFUSE_ISA
