#include <cmath>
#include <utility>

#include "rowwise/cpu/vector.h"
#include "skinny_linear/skinny_linear_cpu.h"

namespace warpfuse::WARPFUSE_ISA {
namespace {

/// Rows of x that are multiplied together with a row of weights, which is loaded and converted
/// once. Weights are read one row after the other: memory is fastest in one stream.
constexpr int kRowsTogether = 4;
constexpr int64_t kRowsAhead = 4;  // of weights, that are prefetched

using Floats = Vectorized<float>;
constexpr int64_t kFloats = Floats::size();

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

/// The products of kRows rows of x with a row of weights. The weights `ahead` elements behind are
/// prefetched: rows are too short for the hardware to do so.
template <int kRows, typename T>
void dot(const float* x, const T* weights, int64_t columns, int64_t ahead, float* sums) {
  constexpr int64_t kStep = 2 * kFloats;
  constexpr auto kStepBytes = static_cast<int64_t>(kStep * sizeof(T));
  Floats low[kRows], high[kRows];
#pragma GCC unroll 4  // so that sums stay in registers
  for (int i = 0; i < kRows; ++i) {
    low[i] = high[i] = Floats(0.0f);
  }
  int64_t column = 0;
  for (; column + kStep <= columns; column += kStep) {
    for (int64_t byte = 0; byte < kStepBytes; byte += 64) {
      __builtin_prefetch(reinterpret_cast<const char*>(weights + column + ahead) + byte);
    }
    const auto [w_low, w_high] = load_two(weights + column);
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      const float* const row = x + i * columns + column;
      low[i] = at::vec::fmadd(Floats::loadu(row), w_low, low[i]);
      high[i] = at::vec::fmadd(Floats::loadu(row + kFloats), w_high, high[i]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
    sums[i] = sum_of(low[i] + high[i]);
  }
  for (int i = 0; i < kRows; ++i) {
    for (int64_t k = column; k < columns; ++k) {
      sums[i] = std::fma(x[i * columns + k], to_float(weights[k]), sums[i]);
    }
  }
}

float activated(float x, Activation activation) {
  constexpr float kSqrtHalf = 0.70710678f, kSqrtTwoOverPi = 0.79788456f, kCubic = 0.044715f;
  switch (activation) {
    case Activation::gelu:
      return 0.5f * x * (1.0f + std::erf(x * kSqrtHalf));
    case Activation::gelu_tanh:
      return 0.5f * x * (1.0f + std::tanh(kSqrtTwoOverPi * (x + kCubic * x * x * x)));
    default:
      return x;
  }
}

/// -inf is never the best.
BestOutput ranked(float value, int64_t output) {
  const bool is_none = value == kNegativeInfinity<float>;
  return {value, std::isnan(value) ? BestOutput::kNaN : (is_none ? BestOutput::kNone : output)};
}

template <typename T>
void linear_outputs(const SkinnyLinearTask& task, int64_t begin, int64_t end) {
  const SkinnyLinearArguments& a = task.arguments;
  const auto* const weight = static_cast<const T*>(a.weight);
  const auto* const bias = static_cast<const T*>(a.bias);
  const auto* const residual = static_cast<const T*>(a.residual);
  float sums[kMaxSkinnyRows];
  for (int64_t output = begin; output < end; ++output) {
    const T* const weights = weight + output * a.weight_stride;
    int64_t row = 0;
    for (; row + kRowsTogether <= a.rows; row += kRowsTogether) {
      dot<kRowsTogether>(task.x + row * a.columns, weights, a.columns, kRowsAhead * a.weight_stride,
                         sums + row);
    }
    for (; row < a.rows; ++row) {
      dot<1>(task.x + row * a.columns, weights, a.columns, kRowsAhead * a.weight_stride,
             sums + row);
    }
    for (row = 0; row < a.rows; ++row) {
      const int64_t index = row * a.outputs + output;
      const float sum = sums[row] + (bias ? to_float(bias[output]) : 0.0f);
      const auto value = static_cast<T>(activated(sum, a.activation) +
                                        (residual ? to_float(residual[index]) : 0.0f));
      if (task.best != nullptr) {
        task.best[row] = std::max(task.best[row], ranked(to_float(value), output));
      } else {
        static_cast<T*>(a.output)[index] = value;
      }
    }
  }
}

template <typename T>
void normalise_rows(const SkinnyLinearTask& task, int64_t begin, int64_t end) {
  const SkinnyLinearArguments& a = task.arguments;
  const auto* const norm_weight = static_cast<const T*>(a.norm_weight);
  const auto* const norm_bias = static_cast<const T*>(a.norm_bias);
  for (int64_t row = begin; row < end; ++row) {
    const T* const from = static_cast<const T*>(a.input) + row * a.columns;
    float* const x = task.x + row * a.columns;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < a.columns; ++i) {
      x[i] = to_float(from[i]);
      sum += x[i];
    }
    if (a.norm == Norm::none) {
      continue;
    }
    const auto columns = static_cast<double>(a.columns);
    const double mean = a.norm == Norm::layer ? sum / columns : 0;
    for (int64_t i = 0; i < a.columns; ++i) {
      squares += (x[i] - mean) * (x[i] - mean);
    }
    const double scale = 1 / std::sqrt(squares / columns + a.epsilon);
    for (int64_t i = 0; i < a.columns; ++i) {
      const auto normalised = static_cast<float>((x[i] - mean) * scale);
      x[i] = normalised * to_float(norm_weight[i]) + (norm_bias ? to_float(norm_bias[i]) : 0.0f);
    }
  }
}

template <typename Function>
void dispatch(DType dtype, const Function& function) {
  switch (dtype) {
    case DType::float32:
      return function(float());
    case DType::float16:
      return function(at::Half());
    default:
      return function(at::BFloat16());
  }
}

}  // namespace

void skinny_norm_cpu(const SkinnyLinearTask& task, int64_t begin, int64_t end) {
  dispatch(task.arguments.dtype,
           [&](auto zero) { normalise_rows<decltype(zero)>(task, begin, end); });
}

void skinny_linear_cpu(const SkinnyLinearTask& task, int64_t begin, int64_t end) {
  dispatch(task.arguments.dtype,
           [&](auto zero) { linear_outputs<decltype(zero)>(task, begin, end); });
}

}  // namespace warpfuse::WARPFUSE_ISA
