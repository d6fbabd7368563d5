#include <algorithm>
#include <bit>

#include "hopper/tensor_map.h"
#include "ms_deform_attn/lab/design_kernel.cuh"
#include "ms_deform_attn/lab/tile_consumer.cuh"
#include "ms_deform_attn/lab/tile_producer.cuh"
#include "rowwise/cuda/dispatch.cuh"

namespace warpfuse::lab {
namespace {

/// Threads of a block, and blocks per multiprocessor for the register allocation.
constexpr int kTmaThreads = 256, kTmaBlocks = 2;
constexpr int kThreads = 512, kBlocks = 2;

/// Persistent: each warp fills its own stages and consumes them.
template <typename T, int kStages>
__global__ void __launch_bounds__(kTmaThreads, kTmaBlocks)
    tma_kernel(const __grid_constant__ CUtensorMap model,
               const __grid_constant__ TileArguments arguments) {
  extern __shared__ char memory[];
  const TileBlock<kStages> block(memory, model, arguments);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  TileProducer<T, kStages, false> producer(arguments, block, warp, arguments.algorithm.consumers);
  TileConsumer<T, kStages> consumer(arguments, block, warp);
  for (int i = 0; i < kStages; ++i) {
    producer.fill();
  }
  while (consumer.consume()) {
    producer.fill();
  }
}

/// Persistent and warp-specialised: the first warps fill the stages of the others.
template <typename T, int kStages, bool kShiftsRegisters>
__global__ void __launch_bounds__(kThreads, kShiftsRegisters ? 1 : kBlocks)
    tma_ws_kernel(const __grid_constant__ CUtensorMap model,
                  const __grid_constant__ TileArguments arguments) {
  extern __shared__ char memory[];
  const TileBlock<kStages> block(memory, model, arguments);
  const TileAlgorithm& algorithm = arguments.algorithm;
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
  if (warp < algorithm.producers) {
    if constexpr (kShiftsRegisters) {
      asm volatile("setmaxnreg.dec.sync.aligned.u32 64;");
    }
    TileProducer<T, kStages, true> producer(arguments, block, warp, algorithm.producers);
    while (producer.fill()) {
    }
  } else {
    if constexpr (kShiftsRegisters) {
      asm volatile("setmaxnreg.inc.sync.aligned.u32 144;");
    }
    TileConsumer<T, kStages> consumer(arguments, block, warp - algorithm.producers);
    while (consumer.consume()) {
    }
  }
}

using Kernel = void (*)(CUtensorMap, TileArguments);

struct Launch {
  Kernel kernel;
  int64_t shared_bytes;
};

template <typename T, int kStages>
Launch launch_of(const TileAlgorithm& algorithm, int64_t levels) {
  const Kernel kernel = !algorithm.has_roles()      ? tma_kernel<T, kStages>
                        : algorithm.shift_registers ? tma_ws_kernel<T, kStages, true>
                                                    : tma_ws_kernel<T, kStages, false>;
  return {kernel, TileBlock<kStages>::bytes(algorithm.consumers, levels)};
}

Launch launch_of(const TileArguments& arguments) {
  const TileAlgorithm& algorithm = arguments.algorithm;
  const int64_t levels = arguments.inputs.sizes.levels;
  return cuda::dispatch(arguments.inputs.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (algorithm.is_design) {
      return Launch{design_kernel<T>, DesignBlock::bytes<T>(levels)};
    }
    switch (algorithm.stages) {
      case 1:
        return launch_of<T, 1>(algorithm, levels);
      case 2:
        return launch_of<T, 2>(algorithm, levels);
      default:
        return launch_of<T, 4>(algorithm, levels);
    }
  });
}

}  // namespace

TileBox::TileBox(const MsDeformAttnSizes& sizes, DType dtype) {
  constexpr int kMaxBytes = 128;
  const int head_bytes = static_cast<int>(sizes.channels) * element_bytes(dtype);
  bytes = std::min(head_bytes, kMaxBytes);
  count = (head_bytes + bytes - 1) / bytes;
  tile_bytes = (4 * bytes + 127) / 128 * 128;
  log_lanes = static_cast<unsigned>(std::bit_width(static_cast<unsigned>(bytes / 16 - 1)));
}

cudaError_t tile_blocks(const TileArguments& arguments, int& blocks) {
  const auto [kernel, shared_bytes] = launch_of(arguments);
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(shared_bytes));
  int per_multiprocessor = 0, device = 0, multiprocessors = 0;
  if (error == cudaSuccess) {
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &per_multiprocessor, kernel, 32 * arguments.algorithm.warps(), shared_bytes);
  }
  if (error == cudaSuccess) {
    error = cudaGetDevice(&device);
  }
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  }
  const int units_per_block = arguments.algorithm.is_design ? 1 : arguments.algorithm.consumers;
  blocks = std::min(per_multiprocessor * multiprocessors,
                    (arguments.units + units_per_block - 1) / units_per_block);
  return error == cudaSuccess && blocks == 0 ? cudaErrorInvalidConfiguration : error;
}

cudaError_t launch_tiles(const TileArguments& arguments, int blocks, cudaStream_t stream) {
  const MsDeformAttnInputs& in = arguments.inputs;
  const int64_t bytes = element_bytes(in.dtype), pixel = in.sizes.pixel_elements() * bytes;
  CUtensorMap model;
  cudaError_t error = cuda::encode_tensor_map(
      model, cuda::tensor_map_type(in.dtype), in.value,
      {{in.sizes.heads * in.sizes.channels, arguments.box.bytes / static_cast<int>(bytes), bytes},
       {1, 2, pixel},
       {1, 2, pixel},
       {in.sizes.batches, 1, in.sizes.pixels * pixel}},
      CU_TENSOR_MAP_SWIZZLE_NONE);
  if (error != cudaSuccess) {
    return error;
  }
  const auto [kernel, shared_bytes] = launch_of(arguments);
  kernel<<<blocks, 32 * arguments.algorithm.warps(), shared_bytes, stream>>>(model, arguments);
  return cudaGetLastError();
}

}  // namespace warpfuse::lab
