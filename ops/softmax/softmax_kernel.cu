#include "rowwise/cuda/column.cuh"
#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/cuda/forward.cuh"
#include "rowwise/cuda/launch.cuh"
#include "rowwise/cuda/naive.cuh"
#include "softmax/softmax_kernel.h"

namespace warpfuse {
namespace {

using namespace cuda;

// Calls function with the row function of log_softmax or softmax for rows of T.
template <typename T, typename Function>
cudaError_t with_forward(const SoftmaxArguments& arguments, const Function& function) {
  const PlainLoad<T> load{static_cast<const T*>(arguments.input), {}};
  T* output = static_cast<T*>(arguments.output);
  const int64_t columns = arguments.layout.columns;
  if (arguments.log) {
    return function(Forward<PlainLoad<T>, LogProbabilityStore<T>>{load, {output}, columns});
  }
  return function(Forward<PlainLoad<T>, ProbabilityStore<T>>{load, {output}, columns});
}

template <typename T>
cudaError_t launch_naive(const SoftmaxArguments& arguments, cudaStream_t stream) {
  constexpr int kThreads = 128;
  const int64_t blocks = (arguments.layout.rows() + kThreads - 1) / kThreads;
  if (blocks > INT_MAX) {
    return cudaErrorInvalidConfiguration;
  }
  naive_counter().add();
  const auto kernel = arguments.log ? naive_kernel<T, true> : naive_kernel<T, false>;
  kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
      static_cast<const T*>(arguments.input), static_cast<T*>(arguments.output), arguments.layout);
  return cudaGetLastError();
}

// Plans one tier by name, or says in `refusal` why it cannot be.
template <typename Function>
bool plan_by_name(const std::string& algorithm, const SoftmaxArguments& arguments, RowPlan* plan,
                  std::string* refusal) {
  using T = typename Function::T;
  for (const Tier tier : {Tier::warp, Tier::block, Tier::stream}) {
    if (algorithm != to_string(tier)) {
      continue;
    }
    const RowLayout& layout = arguments.layout;
    const RowShape shape =
        shape_of<Function>(static_cast<const T*>(arguments.input), layout.columns);
    if (layout.inner == 1 && plan_tier(tier, shape, shared_memory_limit(), RowTuning{}, plan)) {
      return true;
    }
    *refusal = "an algorithm that takes rows of " + std::to_string(layout.columns) +
               " elements that lie " + std::to_string(layout.inner) + " apart";
    return false;
  }
  *refusal = "\"naive\", \"warp\", \"block\" or \"stream\" on CUDA";
  return false;
}

}  // namespace

cudaError_t softmax_forward_cuda(const SoftmaxArguments& arguments, cudaStream_t stream) {
  return dispatch(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* input = static_cast<const T*>(arguments.input);
    if (arguments.layout.inner == 1) {
      return with_forward<T>(arguments, [&](const auto& function) {
        return launch_rows(function, arguments.layout.outer, input, stream);
      });
    }
    return launch_columns(
        arguments.log ? column_forward_kernel<T, true> : column_forward_kernel<T, false>,
        arguments.layout, stream, input, static_cast<T*>(arguments.output));
  });
}

cudaError_t softmax_algorithm_cuda(const SoftmaxArguments& arguments, const std::string& algorithm,
                                   cudaStream_t stream, std::string* refusal) {
  return dispatch(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (algorithm == "naive") {
      return launch_naive<T>(arguments, stream);
    }
    return with_forward<T>(arguments, [&](const auto& function) {
      RowPlan plan{};
      if (!plan_by_name<std::decay_t<decltype(function)>>(algorithm, arguments, &plan, refusal)) {
        return cudaSuccess;
      }
      return launch_rows(function, arguments.layout.outer, plan, stream);
    });
  });
}

}  // namespace warpfuse
