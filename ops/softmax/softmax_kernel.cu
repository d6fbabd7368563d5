#include <algorithm>

#include "rowwise/cuda/columns.h"
#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/cuda/forward.cuh"
#include "rowwise/cuda/ladder.cuh"
#include "rowwise/cuda/launch.cuh"
#include "softmax/softmax.h"

namespace warpfuse {
namespace {

using namespace cuda;

// Calls launch(function, shape) with the row function of log_softmax or softmax for rows of T.
template <typename T, typename Launch>
cudaError_t with_forward(const SoftmaxArguments& arguments, const Launch& launch) {
  const T* input = static_cast<const T*>(arguments.input);
  T* output = static_cast<T*>(arguments.output);
  const auto [rows, columns, inner] = arguments.layout;
  const auto call = [&](auto store) {
    const Forward<PlainLoad<T>, decltype(store)> function({}, store, input, output, columns);
    return launch(function, shape_of(function, input, rows, columns));
  };
  return arguments.log ? call(LogProbabilityStore<T>()) : call(ProbabilityStore<T>());
}

template <typename T>
cudaError_t launch_naive(const SoftmaxArguments& arguments, cudaStream_t stream) {
  constexpr int kThreads = 128;
  const LaunchShape shape{Tier::naive, 0, (arguments.layout.rows() + kThreads - 1) / kThreads,
                          kThreads};
  return launch_kernel(arguments.log ? naive_kernel<T, true> : naive_kernel<T, false>, shape,
                       stream, static_cast<const T*>(arguments.input),
                       static_cast<T*>(arguments.output), arguments.layout);
}

}  // namespace

cudaError_t launch_cuda(const SoftmaxArguments& arguments, Workspace& workspace,
                        cudaStream_t stream) {
  if (arguments.layout.inner != 1) {
    return softmax_columns(arguments.dtype, arguments.log, 1, arguments.input, arguments.output,
                           arguments.layout, stream);
  }
  return dispatch(arguments.dtype, [&](auto zero) {
    return with_forward<decltype(zero)>(arguments,
                                        [&](const auto& function, const RowShape& shape) {
                                          return launch_rows(function, shape, workspace, stream);
                                        });
  });
}

cudaError_t launch_cuda(const SoftmaxAlgorithmArguments& call, Workspace& workspace,
                        cudaStream_t stream) {
  const auto& [arguments, algorithm, refusal] = call;
  constexpr Tier kTiers[] = {Tier::warp, Tier::block, Tier::cluster, Tier::stream};
  const Tier* tier = std::find_if(std::begin(kTiers), std::end(kTiers),
                                  [&](Tier known) { return to_string(known) == algorithm; });
  return dispatch(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (algorithm == to_string(Tier::naive)) {
      return launch_naive<T>(arguments, stream);
    }
    if (tier == std::end(kTiers)) {
      *refusal = "\"naive\", \"warp\", \"block\", \"cluster\" or \"stream\" on CUDA";
      return cudaSuccess;
    }
    return with_forward<T>(arguments, [&](const auto& function, const RowShape& shape) {
      RowPlan plan{};
      if (arguments.layout.inner != 1 ||
          !plan_tier(*tier, shape, device_limits().rows, tuning(), &plan)) {
        *refusal = "an algorithm that takes rows of " + std::to_string(arguments.layout.columns) +
                   " elements that lie " + std::to_string(arguments.layout.inner) +
                   " apart on this GPU";
        return cudaSuccess;
      }
      return launch_rows(function, shape.rows, plan, workspace, stream);
    });
  });
}

}  // namespace warpfuse
