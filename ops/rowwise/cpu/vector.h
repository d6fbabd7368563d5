#pragma once

// The vectors of the CPU's row kernels. Only files compiled per instruction set include this.

#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>

#include <cmath>
#include <limits>
#include <type_traits>

#include "common/cascade_sum.h"
#include "common/cpu_capability.h"

namespace warpfuse::WARPFUSE_ISA {

/// What a dtype is computed in: double for double, else float.
template <typename T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename C>
constexpr C kLowest = -std::numeric_limits<C>::infinity();

/// Calls full(i) for each whole vector of [begin, end), then tail(i, count) for what is left.
template <typename C, typename Full, typename Tail>
inline void for_vectors(int64_t begin, int64_t end, const Full& full, const Tail& tail) {
  constexpr int64_t kSize = at::vec::Vectorized<C>::size();
  int64_t i = begin;
  for (; i + kSize <= end; i += kSize) {
    full(i);
  }
  if (i < end) {
    tail(i, end - i);
  }
}

/// The largest of values[0, count); a NaN may be dropped, since it comes back through the sum.
template <typename C>
inline C max_of(const C* values, int64_t count) {
  using Vec = at::vec::Vectorized<C>;
  Vec largest(kLowest<C>);
  for_vectors<C>(
      0, count, [&](int64_t i) { largest = at::vec::maximum(largest, Vec::loadu(values + i)); },
      [&](int64_t i, int64_t left) {
        const Vec tail = Vec::set(Vec(kLowest<C>), Vec::loadu(values + i, left), left);
        largest = at::vec::maximum(largest, tail);
      });
  return at::vec::vec_reduce_all<C>(
      [](const Vec& a, const Vec& b) { return at::vec::maximum(a, b); }, largest);
}

/// sum of map(i-th vector) over [0, count); map gets the offset and how many elements are real.
template <typename C, typename Map>
inline C sum_of(int64_t count, const Map& map) {
  using Vec = at::vec::Vectorized<C>;
  CascadeSum<Vec> sum(Vec(C(0)));
  for_vectors<C>(
      0, count, [&](int64_t i) { sum.add(map(i, int64_t(Vec::size()))); },
      [&](int64_t i, int64_t left) { sum.add(Vec::set(Vec(C(0)), map(i, left), left)); });
  return at::vec::vec_reduce_all<C>([](const Vec& a, const Vec& b) { return a + b; }, sum.value());
}

/// Loads, where count is below the vector's size, only that many.
template <typename C>
inline at::vec::Vectorized<C> load(const C* from, int64_t count) {
  using Vec = at::vec::Vectorized<C>;
  return count == Vec::size() ? Vec::loadu(from) : Vec::loadu(from, count);
}

/// to[i] = map(i-th vector) over [0, count).
template <typename C, typename Map>
inline void transform(C* to, int64_t count, const Map& map) {
  using Vec = at::vec::Vectorized<C>;
  for_vectors<C>(
      0, count, [&](int64_t i) { map(i, int64_t(Vec::size())).store(to + i); },
      [&](int64_t i, int64_t left) { map(i, left).store(to + i, left); });
}

/// to = from, converted, with one rounding.
template <typename To, typename From>
inline void convert(const From* from, To* to, int64_t count) {
  at::vec::convert(from, to, count);
}

}  // namespace warpfuse::WARPFUSE_ISA
