#include "rowwise/cuda/backward.cuh"
#include "rowwise/cuda/column.cuh"
#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/cuda/launch.cuh"
#include "softmax/softmax_kernel.h"

namespace warpfuse {
namespace {

using namespace cuda;

template <typename T, bool kLog>
cudaError_t backward(const SoftmaxBackwardArguments& arguments, cudaStream_t stream) {
  const T* g = static_cast<const T*>(arguments.grad_output);
  const T* y = static_cast<const T*>(arguments.output);
  T* dx = static_cast<T*>(arguments.grad_input);
  const RowLayout& layout = arguments.layout;
  if (layout.inner == 1) {
    return launch_rows(Backward<T, NoMask, kLog>{y, g, dx, {}, Compute<T>(1), layout.columns},
                       layout.outer, y, stream);
  }
  return launch_columns(column_backward_kernel<T, kLog>, layout, stream, g, y, dx);
}

}  // namespace

cudaError_t softmax_backward_cuda(const SoftmaxBackwardArguments& arguments, cudaStream_t stream) {
  return dispatch(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    return arguments.log ? backward<T, true>(arguments, stream)
                         : backward<T, false>(arguments, stream);
  });
}

}  // namespace warpfuse
