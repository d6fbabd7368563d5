#pragma once

#include "rowwise/cuda/backward.cuh"
#include "rowwise/cuda/forward.cuh"
#include "rowwise/cuda/kernel_launch.h"
#include "rowwise/cuda/two_pass.cuh"

namespace warpfuse::cuda {

// The first pass of the tier stream depends on what a function reads alone. Functions that read
// alike share the kernel of one of them, which one object file has.

/// The function whose kernel reads the rows of `function`.
template <RowFunction F>
auto reader_of(const F& function) {
  if constexpr (requires { function.reader(); }) {
    return function.reader();
  } else {
    return function;
  }
}

/// Reads the rows of shape.blocks / parts steps: partials[steps][parts].
template <RowFunction F>
cudaError_t launch_split_read(const F& function, const LaunchShape& shape, int parts,
                              typename F::Partial* partials, cudaStream_t stream) {
  return launch_kernel(split_read_kernel<F>, shape, stream, function, parts, partials);
}

template <typename T>
using SoftmaxReader = Forward<ScaledLoad<T>, ProbabilityStore<T>>;
template <typename T>
using MaskTensorReader = Forward<MaskedLoad<T, true>, ProbabilityStore<T>>;
template <typename T>
using GradientReader = Backward<T, NoMask, false>;

/// Instantiates the launch of a reader here, or, with `extern`, says that another file does.
#define WARPFUSE_READER(extern_or_empty, Reader, T)                                            \
  extern_or_empty template cudaError_t launch_split_read(const Reader<T>&, const LaunchShape&, \
                                                         int, Reader<T>::Partial*, cudaStream_t)
#define WARPFUSE_READERS(extern_or_empty, Reader)   \
  WARPFUSE_READER(extern_or_empty, Reader, double); \
  WARPFUSE_READER(extern_or_empty, Reader, float);  \
  WARPFUSE_READER(extern_or_empty, Reader, __half); \
  WARPFUSE_READER(extern_or_empty, Reader, __nv_bfloat16)

}  // namespace warpfuse::cuda
