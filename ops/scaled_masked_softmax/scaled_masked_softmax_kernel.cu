#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/cuda/forward.cuh"
#include "rowwise/cuda/launch.cuh"
#include "scaled_masked_softmax/scaled_masked_softmax.h"

namespace warpfuse {
namespace {

using namespace cuda;

template <typename T, bool kTensor>
cudaError_t forward(const MaskedSoftmaxArguments& arguments, Workspace& workspace,
                    cudaStream_t stream) {
  using Load = MaskedLoad<T, kTensor>;
  const T* scores = static_cast<const T*>(arguments.scores);
  const int64_t rows = arguments.rows, keys = arguments.rules.keys;
  const Load load{{arguments.rules, arguments.mask, {}}, static_cast<Compute<T>>(arguments.scale)};
  const Forward<Load, ProbabilityStore<T>> function(load, {}, scores,
                                                    static_cast<T*>(arguments.output), keys);
  return launch_rows(function, shape_of(function, scores, rows, keys), workspace, stream);
}

}  // namespace

cudaError_t launch_cuda(const MaskedSoftmaxArguments& arguments, Workspace& workspace,
                        cudaStream_t stream) {
  return dispatch(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    return arguments.mask.kind == MaskKind::none ? forward<T, false>(arguments, workspace, stream)
                                                 : forward<T, true>(arguments, workspace, stream);
  });
}

}  // namespace warpfuse
