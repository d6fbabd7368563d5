#pragma once

#include "rowwise/cuda/strided_tile.cuh"
#include "rowwise/kernel_set.h"

namespace warpfuse::cuda {

// Functions of a tile of kVector * width rows. kHeld: the elements stay in registers between
// their read and their write; else they are read twice.

/// softmax times `scale`, or log_softmax.
template <typename T_, bool kLog, int kVector_, bool kHeld = true>
struct StridedForward {
  using T = T_;
  using C = Compute<T>;
  static constexpr Direction kDirection = Direction::forward;
  static constexpr int kInputs = 1;
  static constexpr int kVector = kVector_;
  using Vector = RowVector<T, kVector>;
  using Partial = StridedPartial<T, kVector>;
  /// There is a maximum.
  static constexpr bool kMax = true;
  /// Slots without an element are skipped. The cheap exponentials of half precision cost less than
  /// the branch, so such slots hold -inf.
  static constexpr bool kSkips = sizeof(T) >= 4;
  /// Of 512 threads per multiprocessor: all but packs of half precision and float64 fit 64
  /// registers.
  static constexpr int kMinBlocks = sizeof(T) == 8 || (Vector::kIsPack && sizeof(T) == 2) ? 1 : 2;
  /// Exponentials replace the scores where they fit; else they are computed twice.
  static constexpr bool kKeeps = kHeld && !kLog && sizeof(T) >= 4;

  const T* inputs[1];
  T* output;
  C scale;

  __device__ static Vector neutral() { return Vector::lowest(); }

  __device__ static void add(Vector (&x)[1], Partial& partial) {
    C values[kVector];
    x[0].get(values);
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      const C base = partial.max[v] == negative_infinity<C>() ? C(0) : partial.max[v];
      values[v] = exponential<T>(values[v] - base);
      partial.sum[v] += values[v];
    }
    if constexpr (kKeeps) {
      x[0].set(values);
    }
  }
  /// Turns the total's sum into what write() needs; elements are relative to the warp's maximum.
  __device__ void finish(const Partial& warp, Partial& total) const {
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      const C kept = kKeeps ? rescale_factor<T>(warp.max[v] - total.max[v]) : C(1);
      const C sum = total.sum[v];
      if constexpr (kLog) {
        total.sum[v] = logarithm(sum / kExponentialUnit<T>);
      } else if constexpr (sizeof(T) == 2) {
        total.sum[v] = scale * reciprocal<T>(sum);
      } else {
        total.sum[v] = scale * kept / sum;
      }
    }
  }
  __device__ Vector result(const Vector (&x)[1], const Partial& total) const {
    C values[kVector];
    x[0].get(values);
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      values[v] = kKeeps ? values[v] * total.sum[v]
                  : kLog ? (values[v] - total.max[v]) - total.sum[v]
                         : exponential<T>(values[v] - total.max[v]) * total.sum[v];
    }
    Vector vector;
    vector.set(values);
    return vector;
  }
};

/// The gradient of softmax or log_softmax.
template <typename T_, bool kLog, int kVector_>
struct StridedBackward {
  using T = T_;
  using C = Compute<T>;
  static constexpr Direction kDirection = Direction::backward;
  static constexpr int kInputs = 2;
  static constexpr int kVector = kVector_;
  using Vector = RowVector<T, kVector>;
  using Partial = StridedPartial<T, kVector>;
  static constexpr bool kMax = false;
  static constexpr bool kSkips = false;
  static constexpr int kMinBlocks = 1;

  const T* inputs[2];  // the gradient of the output, and the output
  T* output;           // the gradient of the input

  __device__ static Vector neutral() { return {}; }

  __device__ static void add(const Vector (&x)[2], Partial& partial) {
    C grads[kVector], outputs[kVector];
    x[0].get(grads);
    x[1].get(outputs);
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      partial.sum[v] += kLog ? grads[v] : grads[v] * outputs[v];
    }
  }
  __device__ static void finish(const Partial&, Partial& total) {
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      total.sum[v] /= kLog ? kExponentialUnit<T> : 1;
    }
  }
  __device__ Vector result(const Vector (&x)[2], const Partial& total) const {
    C grads[kVector], outputs[kVector];
    x[0].get(grads);
    x[1].get(outputs);
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      grads[v] = kLog ? grads[v] - exponential<T>(outputs[v]) * total.sum[v]
                      : outputs[v] * (grads[v] - total.sum[v]);
    }
    Vector vector;
    vector.set(grads);
    return vector;
  }
};

}  // namespace warpfuse::cuda
