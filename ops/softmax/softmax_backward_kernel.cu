#include "rowwise/cuda/backward.cuh"
#include "rowwise/cuda/columns.h"
#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/cuda/launch.cuh"
#include "softmax/softmax.h"

namespace warpfuse {
namespace cuda {
WARPFUSE_READERS(, GradientReader);
}

namespace {

using namespace cuda;

template <typename T, bool kLog>
cudaError_t backward(const SoftmaxBackwardArguments& arguments, double scale, Workspace& workspace,
                     cudaStream_t stream) {
  const T* g = static_cast<const T*>(arguments.grad_output);
  const T* y = static_cast<const T*>(arguments.output);
  T* dx = static_cast<T*>(arguments.grad_input);
  const int64_t rows = arguments.layout.rows(), columns = arguments.layout.columns;
  const Backward<T, NoMask, kLog> function(y, g, dx, {}, static_cast<Compute<T>>(scale), columns);
  return launch_rows(function, rows, workspace, stream);
}

}  // namespace

cudaError_t launch_cuda(const SoftmaxBackwardArguments& arguments, Workspace& workspace,
                        cudaStream_t stream) {
  if (arguments.layout.inner != 1) {
    return softmax_columns_backward(arguments.dtype, arguments.log, arguments.grad_output,
                                    arguments.output, arguments.grad_input, arguments.layout,
                                    stream);
  }
  return dispatch(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    return arguments.log ? backward<T, true>(arguments, 1, workspace, stream)
                         : backward<T, false>(arguments, 1, workspace, stream);
  });
}

cudaError_t launch_scaled_softmax(const SoftmaxBackwardArguments& arguments, double scale,
                                  Workspace& workspace, cudaStream_t stream) {
  return dispatch(arguments.dtype, [&](auto zero) {
    return backward<decltype(zero), false>(arguments, scale, workspace, stream);
  });
}

}  // namespace warpfuse
