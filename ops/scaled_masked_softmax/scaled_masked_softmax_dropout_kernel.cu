#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/cuda/dropout.cuh"
#include "rowwise/cuda/forward.cuh"
#include "scaled_masked_softmax/launch_masked.cuh"

namespace warpfuse {
namespace cuda {
WARPFUSE_READERS(extern, MaskTensorReader);
}

namespace {

using namespace cuda;

template <typename T, bool kTensor>
cudaError_t forward(const MaskedSoftmaxDropoutArguments& arguments, Workspace& workspace,
                    cudaStream_t stream) {
  using C = Compute<T>;
  using Mask = DropoutRowContext<KeyMask<T, kTensor>, C>;
  using Load = MaskedLoad<T, kTensor, Mask>;
  const T* scores = static_cast<const T*>(arguments.scores);
  const int64_t rows = arguments.rows, keys = arguments.rules.keys;
  const Mask mask({arguments.rules, arguments.mask, {}}, arguments.rng, arguments.rng_used,
                  nullptr);
  const DropoutStore<T> store{
      {}, DropoutMask<C>(arguments.dropout), static_cast<C*>(arguments.statistics)};
  const Forward<Load, DropoutStore<T>> function({mask, static_cast<C>(arguments.scale)}, store,
                                                scores, static_cast<T*>(arguments.output), keys);
  return launch_masked(function, rows, arguments, workspace, stream, forward<T, true>);
}

}  // namespace

cudaError_t launch_cuda(const MaskedSoftmaxDropoutArguments& arguments, Workspace& workspace,
                        cudaStream_t stream) {
  return dispatch(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    return arguments.mask.kind == MaskKind::none ? forward<T, false>(arguments, workspace, stream)
                                                 : forward<T, true>(arguments, workspace, stream);
  });
}

}  // namespace warpfuse
