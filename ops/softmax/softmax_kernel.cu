#include <string>

#include "rowwise/cuda/columns.h"
#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/cuda/forward.cuh"
#include "rowwise/cuda/ladder.cuh"
#include "rowwise/cuda/launch.cuh"
#include "softmax/softmax.h"

namespace warpfuse {
namespace cuda {
WARPFUSE_READERS(, SoftmaxReader);
}

namespace {

using namespace cuda;

// A tier by name, and where to say why it does not run.
struct Algorithm {
  Tier tier;
  std::string* refusal;
};

// Along the last dimension; by the tuning's plan unless an algorithm is given.
template <typename T, typename Store, typename Load>
cudaError_t forward(const SoftmaxArguments& arguments, const Load& load, const Algorithm* algorithm,
                    Workspace& workspace, cudaStream_t stream) {
  const T* input = static_cast<const T*>(arguments.input);
  const int64_t rows = arguments.layout.rows(), columns = arguments.layout.columns;
  const Forward<Load, Store> function(load, {}, input, static_cast<T*>(arguments.output), columns);
  if (arguments.gap != 0) {
    return launch_rows_with_gap(function, rows, arguments.gap, stream);
  }
  if (algorithm == nullptr) {
    return launch_rows(function, rows, workspace, stream);
  }
  RowPlan plan{};
  if (arguments.layout.inner != 1 || !plan_tier(algorithm->tier, shape_of(function, rows),
                                                device_limits().rows, tuning(), &plan)) {
    *algorithm->refusal = "an algorithm that takes rows of " + std::to_string(columns) +
                          " elements that lie " + std::to_string(arguments.layout.inner) +
                          " apart on this GPU";
    return cudaSuccess;
  }
  return launch_rows(function, rows, plan, workspace, stream);
}

cudaError_t forward(const SoftmaxArguments& arguments, double scale, const Algorithm* algorithm,
                    Workspace& workspace, cudaStream_t stream) {
  return dispatch(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (arguments.log) {
      return forward<T, LogProbabilityStore<T>>(arguments, PlainLoad<T>(), algorithm, workspace,
                                                stream);
    }
    const ScaledLoad<T> load(static_cast<Compute<T>>(scale));
    return forward<T, ProbabilityStore<T>>(arguments, load, algorithm, workspace, stream);
  });
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
  return forward(arguments, 1, nullptr, workspace, stream);
}

cudaError_t launch_scaled_softmax(const SoftmaxArguments& arguments, double scale,
                                  Workspace& workspace, cudaStream_t stream) {
  return forward(arguments, scale, nullptr, workspace, stream);
}

cudaError_t launch_cuda(const SoftmaxAlgorithmArguments& call, Workspace& workspace,
                        cudaStream_t stream) {
  const SoftmaxArguments& arguments = call.softmax;
  if (call.algorithm == to_string(Tier::naive)) {
    return dispatch(arguments.dtype,
                    [&](auto zero) { return launch_naive<decltype(zero)>(arguments, stream); });
  }
  for (const Tier tier : {Tier::warp, Tier::block, Tier::cluster, Tier::stream}) {
    if (call.algorithm == to_string(tier)) {
      const Algorithm algorithm{tier, call.refusal};
      return forward(arguments, 1, &algorithm, workspace, stream);
    }
  }
  *call.refusal = "\"naive\", \"warp\", \"block\", \"cluster\" or \"stream\" on CUDA";
  return cudaSuccess;
}

}  // namespace warpfuse
