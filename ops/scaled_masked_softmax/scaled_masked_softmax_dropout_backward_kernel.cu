#include "rowwise/cuda/backward.cuh"
#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/cuda/dropout.cuh"
#include "scaled_masked_softmax/launch_masked.cuh"

namespace warpfuse {
namespace {

using namespace cuda;

template <typename T, bool kTensor>
cudaError_t backward(const MaskedSoftmaxDropoutBackwardArguments& arguments, Workspace& workspace,
                     cudaStream_t stream) {
  using C = Compute<T>;
  using Mask = DropoutRowContext<KeyMask<T, kTensor>, C>;
  using Inputs = SoftmaxFirst<MaskedLoad<T, kTensor, Mask>>;
  const T* scores = static_cast<const T*>(arguments.scores);
  const int64_t rows = arguments.rows, keys = arguments.rules.keys;
  const Mask mask({arguments.rules, arguments.mask, {}}, arguments.rng, nullptr,
                  static_cast<const C*>(arguments.statistics));
  const C scale = static_cast<C>(arguments.scale);
  const DropoutMask<C> drop(arguments.dropout);
  const Backward<T, Mask, false, Inputs> function(
      scores, static_cast<const T*>(arguments.grad_output), static_cast<T*>(arguments.grad_scores),
      mask, scale * drop.scale, keys, {{mask, scale}, drop});
  return launch_masked(function, rows, arguments, workspace, stream, backward<T, true>);
}

}  // namespace

cudaError_t launch_cuda(const MaskedSoftmaxDropoutBackwardArguments& arguments,
                        Workspace& workspace, cudaStream_t stream) {
  return dispatch(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    return arguments.mask.kind == MaskKind::none ? backward<T, false>(arguments, workspace, stream)
                                                 : backward<T, true>(arguments, workspace, stream);
  });
}

}  // namespace warpfuse
