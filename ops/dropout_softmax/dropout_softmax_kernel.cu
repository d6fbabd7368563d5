#include "dropout_softmax/dropout_softmax_kernel.h"
#include "dropout_softmax/elements.cuh"
#include "rowwise/cuda/column_launch.cuh"
#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/cuda/dropout.cuh"
#include "rowwise/cuda/forward.cuh"
#include "rowwise/cuda/launch.cuh"

namespace warpfuse {
namespace {

using namespace cuda;

/// output = softmax(input) * scale over a dimension that is not the last: one set of kernels for
/// both orders.
template <typename T>
cudaError_t softmax_of_columns(const T* input, T* output, const DropoutSoftmaxArguments& arguments,
                               double scale, cudaStream_t stream) {
  using C = Compute<T>;
  return launch_column_forward<T, false>(input, output, arguments.layout, stream,
                                         ScaledBy<C>{static_cast<C>(scale)});
}

template <typename T>
cudaError_t dropout_first(const DropoutSoftmaxArguments& arguments, Workspace& workspace,
                          cudaStream_t stream) {
  using Load = DropoutLoad<T>;
  const T* input = static_cast<const T*>(arguments.input);
  T* output = static_cast<T*>(arguments.output);
  const auto [rows, columns, inner] = arguments.layout;
  if (inner != 1) {
    const cudaError_t error =
        drop_elements<false>(input, output, rows * columns * inner, arguments.dropout,
                             arguments.rng, arguments.rng_used, stream);
    return error != cudaSuccess ? error : softmax_of_columns(output, output, arguments, 1, stream);
  }
  const typename Load::Mask mask({}, arguments.rng, arguments.rng_used, nullptr);
  const Forward<Load, ProbabilityStore<T>> function({mask, Drop<Compute<T>>(arguments.dropout)}, {},
                                                    input, output, columns, columns);
  return launch_rows(function, shape_of(function, input, rows, columns), workspace, stream);
}

template <typename T>
cudaError_t softmax_first(const DropoutSoftmaxArguments& arguments, Workspace& workspace,
                          cudaStream_t stream) {
  using C = Compute<T>;
  using Load = PlainLoad<T, RandomMask<NoMask, C>>;
  const T* input = static_cast<const T*>(arguments.input);
  T* output = static_cast<T*>(arguments.output);
  const auto [rows, columns, inner] = arguments.layout;
  if (inner != 1) {
    const cudaError_t error =
        softmax_of_columns(input, output, arguments, arguments.dropout.scale, stream);
    return error != cudaSuccess
               ? error
               : drop_elements<true>(output, output, rows * columns * inner, arguments.dropout,
                                     arguments.rng, arguments.rng_used, stream);
  }
  const typename Load::Mask mask({}, arguments.rng, arguments.rng_used, nullptr);
  const DropoutStore<T> store{
      {}, Drop<C>(arguments.dropout), static_cast<C*>(arguments.statistics)};
  const Forward<Load, DropoutStore<T>> function({mask}, store, input, output, columns, columns);
  return launch_rows(function, shape_of(function, input, rows, columns), workspace, stream);
}

}  // namespace

cudaError_t dropout_softmax_cuda(const DropoutSoftmaxArguments& arguments, Workspace& workspace,
                                 cudaStream_t stream) {
  return dispatch(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    return arguments.softmax_first ? softmax_first<T>(arguments, workspace, stream)
                                   : dropout_first<T>(arguments, workspace, stream);
  });
}

cudaError_t dropout_mask_cuda(const DropoutMaskArguments& arguments, cudaStream_t stream) {
  return launch_kernel(mark_elements_kernel<bool>, elements_shape(arguments.elements), stream,
                       arguments.mask, arguments.elements, arguments.dropout, arguments.rng);
}

}  // namespace warpfuse
