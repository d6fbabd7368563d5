#include "cached_attention_softmax/prompt_in_order.cuh"
#include "cached_attention_softmax/prompt_kernel.h"
#include "hopper/tensor_map.h"
#include "rowwise/cuda/device_limits.h"
#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/cuda/kernel_launch.h"

namespace warpfuse {
namespace {

using namespace cuda;

template <typename Prompt, int kBlocks>
__global__ void __launch_bounds__(Prompt::kThreads, kBlocks)
    prompt_any_order_kernel(const __grid_constant__ CachedAttentionArguments a,
                            const __grid_constant__ PromptOrder order) {
  extern __shared__ unsigned char memory[];
  __shared__ typename Prompt::Shared shared;
  wait_for_previous_kernel();
  Prompt::attend(a, PromptBlock(a, order, Prompt::kQueries), shared, operand_memory(memory));
}

template <typename T, int kHeadDim>
__global__ void __launch_bounds__(InOrderPrompt<T, kHeadDim>::kThreads,
                                  InOrderPrompt<T, kHeadDim>::kBlocks)
    prompt_in_order_kernel(const __grid_constant__ CachedAttentionArguments a,
                           const __grid_constant__ PromptMaps maps,
                           const __grid_constant__ PromptOrder order) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Prompt = InOrderPrompt<T, kHeadDim>;
  extern __shared__ unsigned char memory[];
  __shared__ typename Prompt::Shared shared;
  __shared__ typename Prompt::AnyOrder::Shared any_order;
  if (threadIdx.x == 0) {
    shared.init(Prompt::kThreads / 32);
  }
  const PromptBlock block(a, order, Prompt::kQueries);
  wait_for_previous_kernel();
  __syncthreads();
  Prompt prompt(a, maps, block, shared, operand_memory(memory));
  if (!prompt.attend(TokensInOrder<Prompt::kThreads>(a, block.batch))) {
    Prompt::AnyOrder::attend(a, block, any_order, operand_memory(memory));
  }
#endif
}

/// Dynamic shared memory of a block.
template <typename Prompt>
constexpr size_t kPromptBytes = Prompt::kSharedBytes + kOperandAlignment;

/// Launches a block per Prompt::kQueries queries of a head.
template <typename Prompt, typename Kernel, typename... Parameters>
cudaError_t launch_blocks(Kernel kernel, const CachedAttentionArguments& a, cudaStream_t stream,
                          const Parameters&... parameters) {
  const int64_t query_tiles = (a.tokens + Prompt::kQueries - 1) / Prompt::kQueries;
  LaunchShape shape{Tier::tile, 0, a.batch * a.heads * query_tiles, Prompt::kThreads};
  shape.shared_bytes = kPromptBytes<Prompt>;
  return launch_kernel(kernel, shape, stream, a, parameters..., PromptOrder(a));
}

/// The form of any order for a dtype and heads of up to kHeadDim elements.
template <typename T, int kHeadDim>
struct AnyOrderForm {
  // Half of the queries per block in float32, for two blocks per multiprocessor.
  static constexpr bool kIsFloat = sizeof(T) == 4;
  static constexpr int kBlocks = kHeadDim == 64 ? 2 : 1;
  static constexpr int kWarps = kIsFloat && kBlocks == 2 ? 4 : 8, kStages = kIsFloat ? 2 : 4;
  using Prompt = AnyOrderPrompt<PromptProducts<T, kHeadDim>, kWarps, kStages>;
};

/// Calls what(zero of the dtype, the head's elements as the kernels have them).
template <typename What>
auto dispatch_prompt(const CachedAttentionArguments& a, What&& what) {
  return dispatch_narrow(a.dtype, [&](auto zero) {
    return a.head_dim <= 64 ? what(zero, std::integral_constant<int, 64>())
                            : what(zero, std::integral_constant<int, 128>());
  });
}

/// False where the TMA unit does not take the tensors.
bool encode_maps(PromptMaps& maps, const CachedAttentionArguments& a) {
  const auto encode = [&](CUtensorMap& map, const auto& tensor, int64_t heads, int64_t rows,
                          int box_rows = kTileSlots) {
    const int64_t bytes = element_bytes(a.dtype);
    return encode_tensor_map(
               map, tensor_map_type(a.dtype), tensor.data,
               {{.size = a.head_dim, .box = kPanelElements, .stride_bytes = bytes},
                {.size = rows, .box = box_rows, .stride_bytes = tensor.row_stride * bytes},
                {.size = heads, .box = 1, .stride_bytes = tensor.head_stride * bytes},
                {.size = a.batch, .box = 1, .stride_bytes = tensor.batch_stride * bytes}},
               CU_TENSOR_MAP_SWIZZLE_128B) == cudaSuccess;
  };
  const int64_t width = a.heads * a.head_dim;
  const HeadRows<void*> output{a.output, a.tokens * width, a.head_dim, width};
  return encode(maps.output, output, a.heads, a.tokens, kWarpQueries) &&
         encode(maps.query, a.query, a.heads, a.tokens) &&
         encode(maps.key, a.key, a.key_heads, a.tokens) &&
         encode(maps.value, a.value, a.key_heads, a.tokens) &&
         encode(maps.keys, a.keys, a.key_heads, a.slots) &&
         encode(maps.values, a.values, a.key_heads, a.slots);
}

}  // namespace

bool takes_prompt(const CachedAttentionArguments& a) {
  constexpr int kMinTokens = 16;
  return a.tokens >= kMinTokens && a.head_dim <= 128 &&
         dispatch_prompt(a, [](auto zero, auto head_dim) {
           using Prompt = typename AnyOrderForm<decltype(zero), head_dim.value>::Prompt;
           return kPromptBytes<Prompt> <= device_limits().rows.shared_bytes;
         });
}

cudaError_t launch_prompt(const CachedAttentionArguments& a, cudaStream_t stream) {
  return dispatch_prompt(a, [&](auto zero, auto head_dim) {
    using T = decltype(zero);
    constexpr int kHeadDim = head_dim.value;
    if constexpr (sizeof(T) == 2) {
      PromptMaps maps;
      if (has_wgmma_code() && encode_maps(maps, a)) {
        return launch_blocks<InOrderPrompt<T, kHeadDim>>(prompt_in_order_kernel<T, kHeadDim>, a,
                                                         stream, maps);
      }
    }
    using Form = AnyOrderForm<T, kHeadDim>;
    return launch_blocks<typename Form::Prompt>(
        prompt_any_order_kernel<typename Form::Prompt, Form::kBlocks>, a, stream);
  });
}

}  // namespace warpfuse
