#include "rowwise/cuda/backward.cuh"
#include "rowwise/cuda/dispatch.cuh"
#include "scaled_masked_softmax/launch_masked.cuh"
#include "softmax/softmax.h"

namespace warpfuse {
namespace {

using namespace cuda;

template <typename T, bool kTensor>
cudaError_t backward(const MaskedSoftmaxBackwardArguments& arguments, Workspace& workspace,
                     cudaStream_t stream) {
  const T* output = static_cast<const T*>(arguments.output);
  const int64_t rows = arguments.rows, keys = arguments.rules.keys;
  const Backward<T, KeyMask<T, kTensor>, false> function(
      output, static_cast<const T*>(arguments.grad_output), static_cast<T*>(arguments.grad_scores),
      {arguments.rules, arguments.mask, {}}, static_cast<Compute<T>>(arguments.scale), keys);
  return launch_masked(function, rows, arguments, workspace, stream, backward<T, true>);
}

}  // namespace

cudaError_t launch_cuda(const MaskedSoftmaxBackwardArguments& arguments, Workspace& workspace,
                        cudaStream_t stream) {
  if (arguments.mask.kind != MaskKind::boolean && arguments.rules.hides_none()) {
    const RowLayout layout{arguments.rows, arguments.rules.keys, 1};
    return launch_scaled_softmax({arguments.grad_output, arguments.output, arguments.grad_scores,
                                  arguments.dtype, layout, false},
                                 arguments.scale, workspace, stream);
  }
  return dispatch(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    // An additive mask has done its work in the forward: only a boolean one is read again.
    return arguments.mask.kind == MaskKind::boolean
               ? backward<T, true>(arguments, workspace, stream)
               : backward<T, false>(arguments, workspace, stream);
  });
}

}  // namespace warpfuse
