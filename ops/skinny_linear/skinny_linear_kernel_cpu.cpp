#include <cmath>
#include <tuple>
#include <utility>

#include "rowwise/cpu/dispatch.h"
#include "rowwise/cpu/limits.h"
#include "rowwise/cpu/vector.h"
#include "skinny_linear/skinny_linear_cpu.h"

namespace warpfuse::WARPFUSE_ISA {
namespace {

using Floats = Vectorized<float>;
constexpr int64_t kFloats = Floats::size();

/// Outputs that are activated, rounded and stored together.
template <typename T>
constexpr int64_t kBlock = kPackSize<T>;

template <typename T>
float to_float(T x) {
  return static_cast<float>(x);
}

float sum_of(const Floats& values) {
  return at::vec::vec_reduce_all<float>([](const Floats& a, const Floats& b) { return a + b; },
                                        values);
}

/// Elements [0, 2 * kFloats).
template <typename T>
C10_ALWAYS_INLINE std::pair<Floats, Floats> load_two(const T* from) {
  if constexpr (std::is_same_v<T, float>) {
    return {Floats::loadu(from), Floats::loadu(from + kFloats)};
  } else {
    const auto [low, high] = at::vec::convert_to_float<T>(Vectorized<T>::loadu(from));
    return {low, high};
  }
}

/// Brings 2 * kFloats elements to the cache that kLocality names (3: the first level, 2: the
/// second), from `bytes` behind `from` on.
template <int kLocality, typename T>
C10_ALWAYS_INLINE void prefetch_two(const T* from, int64_t bytes) {
  constexpr auto kBytes = static_cast<int64_t>(2 * kFloats * sizeof(T));
  for (int64_t byte = 0; byte < kBytes; byte += kLineBytes) {
    __builtin_prefetch(reinterpret_cast<const char*>(from) + bytes + byte, /*rw=*/0, kLocality);
  }
}

/// The products of kRows rows of x with kOutputs rows of weights: products[row * kBlock<T> +
/// output]. `distance`: prefetch_distance(). Several rows of weights are streams of their own, of
/// which the next ones are prefetched.
template <int kRows, int kOutputs, typename T>
C10_ALWAYS_INLINE void multiply(const float* x, const T* weights, int64_t stride, int64_t columns,
                                int64_t distance, float* products) {
  // An addition waits for the one before it to the same sum, so a single product has four sums.
  constexpr int kProducts = kRows * kOutputs, kParts = kProducts == 1 ? 4 : 1;
  constexpr int64_t kPair = 2 * kFloats;
  Floats sums[kProducts * kParts];
#pragma GCC unroll 16  // so that sums stay in registers
  for (int i = 0; i < kProducts * kParts; ++i) {
    sums[i] = Floats(0.0f);
  }
  const auto add_pair = [&](int64_t column, int part) {
    Floats low[kOutputs], high[kOutputs];
#pragma GCC unroll 2
    for (int output = 0; output < kOutputs; ++output) {
      const T* const from = weights + output * stride + column;
      std::tie(low[output], high[output]) = load_two(from);
      if (kOutputs > 1) {
        prefetch_two<2>(from + kOutputs * stride, 0);
      } else if (distance > 0) {
        prefetch_two<3>(from, distance);
      }
    }
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      const float* const from = x + row * columns + column;
      const Floats x_low = Floats::loadu(from), x_high = Floats::loadu(from + kFloats);
#pragma GCC unroll 2
      for (int output = 0; output < kOutputs; ++output) {
        Floats* const sum = sums + (row * kOutputs + output) * kParts;
        sum[part % kParts] = at::vec::fmadd(x_low, low[output], sum[part % kParts]);
        Floats& second = sum[(part + 1) % kParts];
        second = at::vec::fmadd(x_high, high[output], second);
      }
    }
  };
  int64_t column = 0;
  for (; column + 2 * kPair <= columns; column += 2 * kPair) {
    add_pair(column, 0);
    add_pair(column + kPair, 2);
  }
  if (column + kPair <= columns) {
    add_pair(column, 0);
    column += kPair;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kProducts; ++i) {
    const int row = i / kOutputs, output = i % kOutputs;
    Floats sum = sums[i * kParts];
    for (int part = 1; part < kParts; ++part) {
      sum = sum + sums[i * kParts + part];
    }
    float product = sum_of(sum);
    for (int64_t k = column; k < columns; ++k) {
      product = std::fma(x[row * columns + k], to_float(weights[output * stride + k]), product);
    }
    products[row * kBlock<T> + output] = product;
  }
}

template <typename P>
P activated(const P& x, Activation activation) {
  constexpr float kSqrtHalf = 0.70710678f, kSqrtTwoOverPi = 0.79788456f, kCubic = 0.044715f;
  const P half(0.5f), one(1.0f);
  switch (activation) {
    case Activation::gelu:
      return half * x * (one + (x * P(kSqrtHalf)).erf());
    case Activation::gelu_tanh:
      return half * x * (one + (P(kSqrtTwoOverPi) * (x + P(kCubic) * x * x * x)).tanh());
    default:
      return x;
  }
}

/// -inf is never the best.
BestOutput ranked(float value, int64_t output) {
  const bool is_none = value == kNegativeInfinity<float>;
  return {value, std::isnan(value) ? BestOutput::kNaN : (is_none ? BestOutput::kNone : output)};
}

/// The best of `best` and the values of outputs from `first` on.
template <typename T>
void find_best(const Pack<T>& values, int64_t first, int64_t count, BestOutput& best) {
  T rounded[kBlock<T>];
  std::fill_n(rounded, kBlock<T>, -std::numeric_limits<T>::infinity());
  store<T>(values, rounded, count);
  const auto largest = at::vec::vec_reduce_all<float>(
      [](const auto& a, const auto& b) { return at::vec::maximum(a, b); },
      load<T>(rounded, kBlock<T>));
  if (best.output != BestOutput::kNone && largest <= best.value) {
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    best = std::max(best, ranked(to_float(rounded[i]), first + i));
  }
}

/// All rows with `count` rows of weights. A single row takes weights one row after the other, as
/// memory is fastest in one stream; of more rows, a tile and two outputs share what is loaded.
template <typename T>
void multiply_block(const SkinnyLinearTask& task, const T* weights, int64_t count,
                    float* products) {
  const SkinnyLinearArguments& a = task.arguments;
  // Sums of a large tile take half of AVX-512's registers.
  constexpr int kTile = 4, kLargeTile = kFloats == 16 ? 8 : kTile, kOutputs = 2;
  const int64_t whole_rows = a.rows / kTile * kTile, whole = count / kOutputs * kOutputs;
  const int64_t distance = prefetch_distance();
  const auto with = [&](auto rows, auto outputs, int64_t row, int64_t output) {
    multiply<decltype(rows)::value, decltype(outputs)::value>(
        task.x + row * a.columns, weights + output * a.weight_stride, a.weight_stride, a.columns,
        distance, products + row * kBlock<T> + output);
  };
  constexpr std::integral_constant<int, 1> kOne;
  constexpr std::integral_constant<int, kOutputs> kTwo;
  for (int64_t output = 0; output < count; ++output) {
    if (output % kOutputs == 0 && output < whole) {
      int64_t row = 0;
      for (; row + kLargeTile <= a.rows; row += kLargeTile) {
        with(std::integral_constant<int, kLargeTile>(), kTwo, row, output);
      }
      if (row + kTile <= a.rows) {
        with(std::integral_constant<int, kTile>(), kTwo, row, output);
      }
    }
    for (int64_t row = output < whole ? whole_rows : 0; row < a.rows; ++row) {
      with(kOne, kOne, row, output);
    }
  }
}

template <typename T>
void linear_outputs(const SkinnyLinearTask& task, int64_t begin, int64_t end) {
  const SkinnyLinearArguments& a = task.arguments;
  const auto* const weight = static_cast<const T*>(a.weight);
  const auto* const bias = static_cast<const T*>(a.bias);
  const auto* const residual = static_cast<const T*>(a.residual);
  float products[kMaxSkinnyRows * kBlock<T>] = {};
  for (int64_t first = begin; first < end; first += kBlock<T>) {
    const int64_t count = std::min(kBlock<T>, end - first);
    multiply_block(task, weight + first * a.weight_stride, count, products);
    for (int64_t row = 0; row < a.rows; ++row) {
      const int64_t index = row * a.outputs + first;
      auto values = Pack<T>::loadu(products + row * kBlock<T>);
      if (bias != nullptr) {
        values = values + load<T>(bias + first, count);
      }
      values = activated(values, a.activation);
      if (residual != nullptr) {
        values = values + load<T>(residual + index, count);
      }
      if (task.best != nullptr) {
        find_best<T>(values, first, count, task.best[row]);
      } else {
        store<T>(values, static_cast<T*>(a.output) + index, count);
      }
    }
  }
}

template <typename T>
void normalise_rows(const SkinnyLinearTask& task, int64_t begin, int64_t end) {
  const SkinnyLinearArguments& a = task.arguments;
  const auto* const norm_weight = static_cast<const T*>(a.norm_weight);
  const auto* const norm_bias = static_cast<const T*>(a.norm_bias);
  const auto columns = static_cast<float>(a.columns);
  for (int64_t row = begin; row < end; ++row) {
    const T* const from = static_cast<const T*>(a.input) + row * a.columns;
    const auto mean_of = [&](const auto& map) {
      return Pack<T>(warpfuse::WARPFUSE_ISA::sum_of<T>(a.columns, map) / columns);
    };
    const auto element = [&](int64_t i, int64_t n) { return load<T>(from + i, n); };
    Pack<T> mean(0.0f), scale(1.0f), rest(0.0f);
    if (a.norm == Norm::layer) {
      mean = mean_of(element);
      // What rounding left of it: far from zero, differences are exact and the mean is not.
      rest = mean_of([&](int64_t i, int64_t n) { return element(i, n) - mean; });
    }
    const auto centred = [&](int64_t i, int64_t n) { return element(i, n) - mean - rest; };
    if (a.norm != Norm::none) {
      const Pack<T> square = mean_of([&](int64_t i, int64_t n) {
        const Pack<T> x = centred(i, n);
        return x * x;
      });
      scale = (square + Pack<T>(a.epsilon)).rsqrt();
    }
    float* const to = task.x + row * a.columns;
    for (int64_t i = 0; i < a.columns; i += kPackSize<T>) {
      const int64_t n = std::min(kPackSize<T>, a.columns - i);
      Pack<T> x = centred(i, n) * scale;
      if (norm_weight != nullptr) {
        x = x * load<T>(norm_weight + i, n);
      }
      if (norm_bias != nullptr) {
        x = x + load<T>(norm_bias + i, n);
      }
      x.store(to + i, static_cast<int>(n));
    }
  }
}

}  // namespace

void skinny_norm_cpu(const SkinnyLinearTask& task, int64_t begin, int64_t end) {
  dispatch_narrow(task.arguments.dtype,
                  [&](auto zero) { normalise_rows<decltype(zero)>(task, begin, end); });
}

void skinny_linear_cpu(const SkinnyLinearTask& task, int64_t begin, int64_t end) {
  dispatch_narrow(task.arguments.dtype,
                  [&](auto zero) { linear_outputs<decltype(zero)>(task, begin, end); });
}

}  // namespace warpfuse::WARPFUSE_ISA
