#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/cuda/forward.cuh"
#include "scaled_masked_softmax/launch_masked.cuh"
#include "softmax/softmax.h"

namespace warpfuse {
namespace cuda {
WARPFUSE_READERS(, MaskTensorReader);
}

namespace {

using namespace cuda;

template <typename T>
cudaError_t forward_with_tensor(const MaskedSoftmaxArguments& arguments, Workspace& workspace,
                                cudaStream_t stream);

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
  return launch_masked(function, rows, arguments, workspace, stream, forward_with_tensor<T>);
}

template <typename T>
cudaError_t forward_with_tensor(const MaskedSoftmaxArguments& arguments, Workspace& workspace,
                                cudaStream_t stream) {
  const MaskedLoad<T, true> load{{arguments.rules, arguments.mask, {}},
                                 static_cast<Compute<T>>(arguments.scale)};
  return forward(arguments, load, workspace, stream);
}

}  // namespace

cudaError_t launch_cuda(const MaskedSoftmaxArguments& arguments, Workspace& workspace,
                        cudaStream_t stream) {
  const bool with_tensor = arguments.mask.kind != MaskKind::none;
  const bool by_exponents = scales_differences(arguments.scale);
  // A row that sees all keys needs no interval: a short one takes two thirds of the instructions.
  if (!with_tensor && by_exponents && arguments.rules.hides_none()) {
    const RowLayout layout{arguments.rows, arguments.rules.keys, 1};
    return launch_scaled_softmax(
        {arguments.scores, arguments.output, arguments.dtype, layout, false, arguments.gap},
        arguments.scale, workspace, stream);
  }
  return dispatch(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (with_tensor) {
      return forward_with_tensor<T>(arguments, workspace, stream);
    }
    if (!by_exponents) {
      return launch_with_all_visible(arguments, workspace, stream, forward_with_tensor<T>);
    }
    const ScaledLoad<T, KeyMask<T, false>> load(static_cast<Compute<T>>(arguments.scale),
                                                {arguments.rules, {}, {}});
    return forward(arguments, load, workspace, stream);
  });
}

}  // namespace warpfuse
