#include "dropout_softmax/dropout_softmax_kernel.h"
#include "dropout_softmax/elements.cuh"
#include "rowwise/cuda/backward.cuh"
#include "rowwise/cuda/column_launch.cuh"
#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/cuda/dropout.cuh"
#include "rowwise/cuda/launch.cuh"

namespace warpfuse {
namespace {

using namespace cuda;

// A dimension that is not the last: the column kernels, and dropout by itself.
template <typename T>
cudaError_t backward_of_columns(const DropoutSoftmaxBackwardArguments& arguments,
                                Workspace& workspace, cudaStream_t stream) {
  const T* g = static_cast<const T*>(arguments.grad_output);
  const T* saved = static_cast<const T*>(arguments.saved);
  T* dx = static_cast<T*>(arguments.grad_input);
  const int64_t elements = arguments.layout.rows() * arguments.layout.columns;
  const auto drop = [&](const T* from, T* to) {
    return drop_elements<false>(from, to, elements, arguments.dropout, arguments.rng, nullptr,
                                stream);
  };
  if (!arguments.softmax_first) {
    const cudaError_t error =
        launch_column_backward<T, false>(g, saved, dx, arguments.layout, stream);
    return error != cudaSuccess ? error : drop(dx, dx);
  }
  T* dropped = static_cast<T*>(workspace.allocate(static_cast<size_t>(elements) * sizeof(T)));
  cudaError_t error = drop(g, dropped);
  if (error == cudaSuccess) {
    error = launch_column_forward<T, false>(saved, dx, arguments.layout, stream);
  }
  return error != cudaSuccess
             ? error
             : launch_column_backward<T, false>(dropped, dx, dx, arguments.layout, stream);
}

template <typename T>
cudaError_t backward(const DropoutSoftmaxBackwardArguments& arguments, Workspace& workspace,
                     cudaStream_t stream) {
  using C = Compute<T>;
  using Mask = RandomMask<NoMask, C>;
  using Load = PlainLoad<T, Mask>;
  const T* g = static_cast<const T*>(arguments.grad_output);
  const T* saved = static_cast<const T*>(arguments.saved);
  T* dx = static_cast<T*>(arguments.grad_input);
  const int64_t rows = arguments.layout.rows(), columns = arguments.layout.columns;
  const Drop<C> drop(arguments.dropout);
  const auto launch = [&](const auto& function) {
    return launch_rows(function, shape_of(function, saved, rows, columns), workspace, stream);
  };
  const Mask mask({}, arguments.rng, nullptr,
                  arguments.softmax_first ? static_cast<const C*>(arguments.statistics) : nullptr);
  if (arguments.softmax_first) {
    return launch(Backward<T, Mask, false, SoftmaxFirst<Load>>(saved, g, dx, mask, drop.scale,
                                                               columns, {{mask}, drop}));
  }
  return launch(
      Backward<T, Mask, false, DropoutFirst<T>>(saved, g, dx, mask, drop.scale, columns, {drop}));
}

}  // namespace

cudaError_t dropout_softmax_backward_cuda(const DropoutSoftmaxBackwardArguments& arguments,
                                          Workspace& workspace, cudaStream_t stream) {
  return dispatch(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    return arguments.layout.inner == 1 ? backward<T>(arguments, workspace, stream)
                                       : backward_of_columns<T>(arguments, workspace, stream);
  });
}

}  // namespace warpfuse
