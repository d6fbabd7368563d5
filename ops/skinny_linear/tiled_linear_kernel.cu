#include <algorithm>
#include <bit>

#include "rowwise/cuda/device_limits.h"
#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/tuning.h"
#include "skinny_linear/linear_forms.h"
#include "skinny_linear/tiled_linear.cuh"

namespace warpfuse::cuda {
namespace {

constexpr int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// How a launch divides its outputs and columns.
struct TiledShape {
  int output_tiles;  // of a block: 2 or 4
  int splits;        // of the columns: blocks of a cluster, a power of two
  int split_packs;
  int warps;
  int64_t blocks;
  size_t shared_bytes;

  explicit TiledShape(const SkinnyLinearArguments& a) {
    const int64_t packs = a.columns * element_bytes(a.dtype) / 16;
    constexpr int64_t kMaxPacks = kMaxTiledWarps * kTiledSteps * kQuad;
    splits = static_cast<int>(std::bit_ceil(static_cast<uint64_t>(ceil_divide(packs, kMaxPacks))));
    split_packs = static_cast<int>(ceil_divide(packs, kQuad * splits)) * kQuad;
    warps = static_cast<int>(ceil_divide(split_packs, kTiledSteps * kQuad));
    // Large blocks read less, as long as they keep half of the multiprocessors busy.
    const auto count = [&](int tiles) {
      return ceil_divide(a.outputs, int64_t{tiles} * kTileOutputs) * splits;
    };
    output_tiles = 2 * count(4) >= device_limits().rows.multiprocessors ? 4 : 2;
    blocks = count(output_tiles) * ceil_divide(a.rows, kRowTiles * kRowTile);
    shared_bytes =
        warps * (output_tiles == 4 ? sizeof(TiledBlock<4>::Staged) : sizeof(TiledBlock<2>::Staged));
  }
};

template <typename T, int kOutputTiles, bool kNorm>
cudaError_t launch(const SkinnyLinearArguments& a, const TiledShape& tiled, cudaStream_t stream) {
  const LaunchShape shape{Tier::tile,       kTiledSteps,  tiled.blocks,
                          tiled.warps * 32, tiled.splits, tiled.shared_bytes};
  return launch_in_chain<tiled_linear_kernel<T, kOutputTiles, kNorm>>(
      shape, stream, a, tiled.splits, tiled.split_packs);
}

}  // namespace

bool fits_tiled_linear(const SkinnyLinearArguments& a) {
  constexpr int kNeighbours = 4;  // outputs that are stored together
  const auto aligned = [](const void* pointer) {
    return reinterpret_cast<uintptr_t>(pointer) % (kNeighbours * 2) == 0;
  };
  if (a.dtype == DType::float32 || a.outputs % kNeighbours != 0 || !aligned(a.bias) ||
      !aligned(a.residual)) {
    return false;
  }
  // With more blocks, the bytes that they read together take longer than ATen's product.
  const TiledShape tiled(a);
  constexpr size_t kStaticBytes = size_t{6} * 1024;
  const RowLimits limits = lower(device_limits().rows, tuning());
  return tiled.shared_bytes + kStaticBytes <= limits.shared_bytes &&
         tiled.splits <= std::min(8, limits.cluster_blocks) &&
         2 * tiled.blocks <= int64_t{3} * limits.multiprocessors;
}

cudaError_t launch_tiled_linear(const SkinnyLinearArguments& a, cudaStream_t stream) {
  const TiledShape tiled(a);
  return dispatch_narrow(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (sizeof(T) == 2) {
      const auto of_tiles = [&](auto tiles) {
        return a.norm == Norm::none ? launch<T, tiles, false>(a, tiled, stream)
                                    : launch<T, tiles, true>(a, tiled, stream);
      };
      return tiled.output_tiles == 4 ? of_tiles(std::integral_constant<int, 4>())
                                     : of_tiles(std::integral_constant<int, 2>());
    } else {
      return cudaErrorInvalidValue;
    }
  });
}

}  // namespace warpfuse::cuda
