#pragma once

#include <cstdint>

#include "rowwise/cpu/dropout_factors.h"
#include "rowwise/cpu/vector.h"
#include "scaled_masked_softmax/masked_block_cpu.h"

namespace warpfuse::WARPFUSE_ISA {

/// The forward of short rows, with or without dropout.
template <typename T, typename Arguments>
void forward_transposed(const Arguments& arguments, int64_t begin, int64_t end) {
  using C = Compute<T>;
  using P = Pack<T>;
  constexpr bool kDrops = kDropout<Arguments>;
  constexpr int64_t kRows = TransposedBlock<T>::kRows;
  const int64_t keys = arguments.rules.keys, size = keys * kRows;
  MaskedBlock<T> block(arguments);
  TransposedFactors<T, kDrops> factors(arguments, keys);
  TransposedBlock<T> output(keys);
  TransposedBlock<T, C> statistics(2);
  const P zero(C(0));
  for_row_groups(begin, end, kRows, [&](int64_t row, int64_t rows) {
    block.read(static_cast<const T*>(arguments.scores) + row * keys, row, rows);
    factors.draw(arguments, row, rows);
    for (int64_t lane = 0; lane < rows; lane += kPackSize<T>) {
      P max(kNegativeInfinity<C>), sum = zero, any = zero;
      for (int64_t at = lane; at < size; at += kRows) {
        max = larger(max, P::loadu(block.scores() + at));
      }
      for (int64_t at = lane; at < size; at += kRows) {
        const P power = exponential(P::loadu(block.scores() + at) - max);
        power.store(block.scores() + at);
        sum = sum + power;
      }
      const P reciprocal = P(C(1)) / sum;
      for (int64_t at = lane; at < size; at += kRows) {
        const P y = factors.apply(P::loadu(block.scores() + at) * reciprocal, at);
        const P counts = block.counts(at);
        store<T>(P::blendv(zero, y, counts), output.data() + at, kPackSize<T>);
        any = any | counts;
      }
      if constexpr (kDrops) {
        P::blendv(P(kNoKey<C>), max, any).store(statistics.data() + lane);
        P::blendv(zero, sum.log(), any).store(statistics.data() + kRows + lane);
      }
    }
    output.write(static_cast<T*>(arguments.output) + row * keys, rows);
    if constexpr (kDrops) {
      statistics.write(static_cast<C*>(arguments.statistics) + 2 * row, rows);
    }
  });
}

/// The backward of short rows, with or without dropout.
template <typename T, typename Arguments>
void backward_transposed(const Arguments& arguments, int64_t begin, int64_t end) {
  using C = Compute<T>;
  using P = Pack<T>;
  constexpr bool kDrops = kDropout<Arguments>;
  constexpr int64_t kRows = TransposedBlock<T>::kRows;
  const int64_t keys = arguments.rules.keys, size = keys * kRows;
  MaskedBlock<T> block(arguments);
  TransposedFactors<T, kDrops> factors(arguments, keys);
  TransposedBlock<T> gradients(keys), output(keys);
  TransposedBlock<T, C> statistics(2);
  const P scale(static_cast<C>(arguments.scale)), zero(C(0));
  for_row_groups(begin, end, kRows, [&](int64_t row, int64_t rows) {
    gradients.read(static_cast<const T*>(arguments.grad_output) + row * keys, rows);
    if constexpr (kDrops) {
      block.read(static_cast<const T*>(arguments.scores) + row * keys, row, rows);
      statistics.read(static_cast<const C*>(arguments.statistics) + 2 * row, rows);
      factors.draw(arguments, row, rows);
    } else {
      output.read(static_cast<const T*>(arguments.output) + row * keys, rows);
      block.read(static_cast<const T*>(arguments.output) + row * keys, row, rows);
    }
    for (int64_t lane = 0; lane < rows; lane += kPackSize<T>) {
      const auto g = [&](int64_t at) C10_ALWAYS_INLINE_ATTRIBUTE {
        return factors.apply(load(gradients.data() + at, kPackSize<T>), at);
      };
      const auto y = [&](int64_t at) C10_ALWAYS_INLINE_ATTRIBUTE {
        if constexpr (kDrops) {
          return exponential(P::loadu(block.scores() + at) - P::loadu(statistics.data() + lane) -
                             P::loadu(statistics.data() + kRows + lane));
        } else {
          return load(output.data() + at, kPackSize<T>);
        }
      };
      P sum = zero;
      for (int64_t at = lane; at < size; at += kRows) {
        sum = sum + P::blendv(zero, y(at) * g(at), block.counts(at));
      }
      for (int64_t at = lane; at < size; at += kRows) {
        const P result = y(at) * (g(at) - sum) * scale;
        store<T>(P::blendv(zero, result, block.is_scored(at)), gradients.data() + at, kPackSize<T>);
      }
    }
    gradients.write(static_cast<T*>(arguments.grad_scores) + row * keys, rows);
  });
}

}  // namespace warpfuse::WARPFUSE_ISA
