#include "dropout_softmax/dropout_softmax.h"
#include "rowwise/cuda/columns.h"
#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/cuda/dropout.cuh"
#include "rowwise/cuda/forward.cuh"
#include "rowwise/cuda/launch.cuh"

namespace warpfuse {
namespace cuda {
WARPFUSE_READERS(extern, SoftmaxReader);
}

namespace {

using namespace cuda;

// A dimension that is not the last: the column kernels, and dropout by itself. Behind a softmax
// that multiplies by dropout's scale before it rounds, dropout rounds nothing.
cudaError_t forward_of_columns(const DropoutSoftmaxArguments& arguments, cudaStream_t stream) {
  const bool softmax_first = arguments.softmax_first;
  const auto softmax = [&](const void* from) {
    return softmax_columns(arguments.dtype, false, softmax_first ? arguments.dropout.scale : 1,
                           from, arguments.output, arguments.layout, stream);
  };
  const auto drop = [&](const void* from) {
    return launch_cuda(
        DropElementsArguments{from, arguments.output, arguments.dtype,
                              arguments.layout.rows() * arguments.layout.columns, arguments.dropout,
                              arguments.rng, arguments.rng_used, softmax_first},
        stream);
  };
  const cudaError_t error = softmax_first ? softmax(arguments.input) : drop(arguments.input);
  return error != cudaSuccess ? error
         : softmax_first      ? drop(arguments.output)
                              : softmax(arguments.output);
}

template <typename T>
cudaError_t dropout_first(const DropoutSoftmaxArguments& arguments, Workspace& workspace,
                          cudaStream_t stream) {
  using Load = DropoutLoad<T>;
  const T* input = static_cast<const T*>(arguments.input);
  T* output = static_cast<T*>(arguments.output);
  const int64_t rows = arguments.layout.rows(), columns = arguments.layout.columns;
  const typename Load::Mask mask({}, arguments.rng, arguments.rng_used, nullptr);
  const Forward<Load, ProbabilityStore<T>> function(
      {mask, DropoutMask<Compute<T>>(arguments.dropout)}, {}, input, output, columns);
  return launch_rows(function, rows, workspace, stream);
}

template <typename T>
cudaError_t softmax_first(const DropoutSoftmaxArguments& arguments, Workspace& workspace,
                          cudaStream_t stream) {
  using C = Compute<T>;
  using Load = PlainLoad<T, DropoutRowContext<NoMask, C>>;
  const T* input = static_cast<const T*>(arguments.input);
  T* output = static_cast<T*>(arguments.output);
  const int64_t rows = arguments.layout.rows(), columns = arguments.layout.columns;
  const typename Load::Mask mask({}, arguments.rng, arguments.rng_used, nullptr);
  const DropoutStore<T> store{
      {}, DropoutMask<C>(arguments.dropout), static_cast<C*>(arguments.statistics)};
  const Forward<Load, DropoutStore<T>> function({mask}, store, input, output, columns);
  return launch_rows(function, rows, workspace, stream);
}

}  // namespace

cudaError_t launch_cuda(const DropoutSoftmaxArguments& arguments, Workspace& workspace,
                        cudaStream_t stream) {
  if (arguments.layout.inner != 1) {
    return forward_of_columns(arguments, stream);
  }
  return dispatch(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    return arguments.softmax_first ? softmax_first<T>(arguments, workspace, stream)
                                   : dropout_first<T>(arguments, workspace, stream);
  });
}

}  // namespace warpfuse
