#include "dropout_softmax/dropout_softmax.h"
#include "rowwise/cuda/backward.cuh"
#include "rowwise/cuda/columns.h"
#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/cuda/dropout.cuh"
#include "rowwise/cuda/launch.cuh"

namespace warpfuse {
namespace cuda {
WARPFUSE_READERS(extern, GradientReader);
}

namespace {

using namespace cuda;

// A dimension that is not the last: the column kernels, and dropout by itself.
cudaError_t backward_of_columns(const DropoutSoftmaxBackwardArguments& arguments,
                                Workspace& workspace, cudaStream_t stream) {
  const DType dtype = arguments.dtype;
  const int64_t elements = arguments.layout.rows() * arguments.layout.columns;
  const auto drop = [&](const void* from, void* to) {
    return launch_cuda(DropElementsArguments{from, to, dtype, elements, arguments.dropout,
                                             arguments.rng, nullptr, false},
                       stream);
  };
  const auto gradient = [&](const void* grad_output, const void* output) {
    return softmax_columns_backward(dtype, false, grad_output, output, arguments.grad_input,
                                    arguments.layout, stream);
  };
  if (!arguments.softmax_first) {
    const cudaError_t error = gradient(arguments.grad_output, arguments.saved);
    return error != cudaSuccess ? error : drop(arguments.grad_input, arguments.grad_input);
  }
  void* dropped = workspace.allocate(static_cast<size_t>(elements * element_bytes(dtype)));
  cudaError_t error = drop(arguments.grad_output, dropped);
  if (error == cudaSuccess) {
    error = softmax_columns(dtype, false, 1, arguments.saved, arguments.grad_input,
                            arguments.layout, stream);
  }
  return error != cudaSuccess ? error : gradient(dropped, arguments.grad_input);
}

template <typename T>
cudaError_t backward(const DropoutSoftmaxBackwardArguments& arguments, Workspace& workspace,
                     cudaStream_t stream) {
  using C = Compute<T>;
  using Mask = DropoutRowContext<NoMask, C>;
  using Load = PlainLoad<T, Mask>;
  const T* g = static_cast<const T*>(arguments.grad_output);
  const T* saved = static_cast<const T*>(arguments.saved);
  T* dx = static_cast<T*>(arguments.grad_input);
  const int64_t rows = arguments.layout.rows(), columns = arguments.layout.columns;
  const DropoutMask<C> drop(arguments.dropout);
  const auto launch = [&](const auto& function) {
    return launch_rows(function, rows, workspace, stream);
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

cudaError_t launch_cuda(const DropoutSoftmaxBackwardArguments& arguments, Workspace& workspace,
                        cudaStream_t stream) {
  if (arguments.layout.inner != 1) {
    return backward_of_columns(arguments, workspace, stream);
  }
  return dispatch(arguments.dtype, [&](auto zero) {
    return backward<decltype(zero)>(arguments, workspace, stream);
  });
}

}  // namespace warpfuse
