#include <limits>

#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/cuda/forward.cuh"
#include "rowwise/cuda/launch.cuh"
#include "scaled_masked_softmax/scaled_masked_softmax.h"
#include "softmax/softmax.h"

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
  // A row that sees all keys needs no interval: a short one takes two thirds of the instructions.
  if (arguments.mask.kind == MaskKind::none && arguments.rules.hides_none() &&
      arguments.scale >= std::numeric_limits<float>::min() && arguments.scale <= 1) {
    const RowLayout layout{arguments.rows, arguments.rules.keys, 1};
    return launch_scaled_softmax(
        {arguments.scores, arguments.output, arguments.dtype, layout, false}, arguments.scale,
        workspace, stream);
  }
  return dispatch(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    return arguments.mask.kind == MaskKind::none ? forward<T, false>(arguments, workspace, stream)
                                                 : forward<T, true>(arguments, workspace, stream);
  });
}

}  // namespace warpfuse
