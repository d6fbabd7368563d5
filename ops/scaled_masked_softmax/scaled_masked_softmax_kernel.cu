#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/cuda/forward.cuh"
#include "rowwise/cuda/launch.cuh"
#include "scaled_masked_softmax/scaled_masked_softmax.h"
#include "softmax/softmax.h"

namespace warpfuse {
namespace {

using namespace cuda;

template <typename Load>
cudaError_t forward(const MaskedSoftmaxArguments& arguments, const Load& load, Workspace& workspace,
                    cudaStream_t stream) {
  using T = typename Load::Element;
  const T* scores = static_cast<const T*>(arguments.scores);
  const int64_t rows = arguments.rows, keys = arguments.rules.keys;
  const Forward<Load, ProbabilityStore<T>> function(load, {}, scores,
                                                    static_cast<T*>(arguments.output), keys);
  if (arguments.gap != 0) {
    return launch_rows_with_gap(function, rows, arguments.gap, stream);
  }
  return launch_rows(function, shape_of(function, scores, rows, keys), workspace, stream);
}

cudaError_t forward_with_tensor(const MaskedSoftmaxArguments& arguments, Workspace& workspace,
                                cudaStream_t stream) {
  return dispatch(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    const MaskedLoad<T, true> load{{arguments.rules, arguments.mask, {}},
                                   static_cast<Compute<T>>(arguments.scale)};
    return forward(arguments, load, workspace, stream);
  });
}

}  // namespace

cudaError_t launch_cuda(const MaskedSoftmaxArguments& arguments, Workspace& workspace,
                        cudaStream_t stream) {
  if (arguments.mask.kind != MaskKind::none) {
    return forward_with_tensor(arguments, workspace, stream);
  }
  if (!scales_differences(arguments.scale)) {  // rare, without kernels of its own
    MaskedSoftmaxArguments masked = arguments;
    void* const visible = workspace.allocate(1);
    masked.mask = {.data = visible, .kind = MaskKind::boolean, .elements = 1};
    const cudaError_t error = cudaMemsetAsync(visible, 1, 1, stream);
    return error != cudaSuccess ? error : forward_with_tensor(masked, workspace, stream);
  }
  // A row that sees all keys needs no interval: a short one takes two thirds of the instructions.
  if (arguments.rules.hides_none()) {
    const RowLayout layout{arguments.rows, arguments.rules.keys, 1};
    return launch_scaled_softmax(
        {arguments.scores, arguments.output, arguments.dtype, layout, false, arguments.gap},
        arguments.scale, workspace, stream);
  }
  return dispatch(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    const ScaledLoad<T, KeyMask<T, false>> load(static_cast<Compute<T>>(arguments.scale),
                                                {arguments.rules, {}, {}});
    return forward(arguments, load, workspace, stream);
  });
}

}  // namespace warpfuse
