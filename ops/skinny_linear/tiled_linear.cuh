#pragma once

#include "common/launch_chain.cuh"
#include "rowwise/cuda/group.cuh"
#include "skinny_linear/norm_correction.cuh"

namespace warpfuse::cuda {

// More rows than a tile of the tensor cores has, in half precision: blocks of rows by outputs.

inline constexpr int kMaxTiledWarps = 8;
inline constexpr int kTiledSteps = 4;  // of a warp: packs of each row that one of its lanes takes
inline constexpr int kRowTile = 2 * kRowGroup, kRowTiles = 2;  // of a block

/// A block's outputs of up to kRows rows. Its warps share its columns; the blocks of a cluster
/// share all of them. A lane copies the packs that it multiplies to shared memory, so that all of
/// them are in flight at once, and reads no other lane's.
template <int kOutputTiles>
struct TiledBlock {
  static constexpr int kRows = kRowTiles * kRowTile, kOutputs = kOutputTiles * kTileOutputs;
  static constexpr int kRowGroups = kRows / kRowGroup;

  struct Staged {  // of a warp
    uint4 weights[kTiledSteps][kOutputTiles][32];
    uint4 rows[kTiledSteps][kRowGroups][32];
  };
  // A warp's sums take the place of what it has multiplied. Rows of a tile lie in different banks.
  static constexpr int kStride = kOutputs + 8;
  static_assert(kRows * kStride * sizeof(float) <= sizeof(Staged));
};

/// As skinny_linear_kernel, for tiles of rows and outputs.
template <typename T, int kOutputTiles, bool kNorm>
__global__ void __launch_bounds__(kMaxTiledWarps * 32)
    tiled_linear_kernel(const __grid_constant__ SkinnyLinearArguments a, int splits,
                        int split_packs, bool continues_chain) {
  using Block = TiledBlock<kOutputTiles>;
  constexpr int kRows = Block::kRows, kOutputs = Block::kOutputs, kRowGroups = Block::kRowGroups;
  extern __shared__ uint4 memory[];
  __shared__ float norm_sums[kNorm ? kMaxTiledWarps : 1][2][kOutputs];  // of w g and w b
  __shared__ RowMoments moments[kNorm ? kMaxTiledWarps : 1][kRows];
  __shared__ float norm_totals[2][kNorm ? kOutputs : 1];
  __shared__ RowNorm row_norms[kNorm ? kRows : 1];
  if (continues_chain) {
    launch_dependents();
  }
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32, warps = static_cast<int>(blockDim.x) / 32;
  auto& staged = reinterpret_cast<typename Block::Staged*>(memory)[warp];
  const int split = splits > 1 ? BlockGroup::rank_in_cluster() : 0;
  const int rows = static_cast<int>(a.rows), row_blocks = (rows + kRows - 1) / kRows;
  const int block = static_cast<int>(blockIdx.x) / splits;
  const int first_row = block % row_blocks * kRows;
  const int64_t first_output = int64_t{block / row_blocks} * kOutputs;
  const int begin_pack = split * split_packs;
  const int end_pack = min(begin_pack + split_packs, static_cast<int>(a.columns) / kPack<T>);
  const auto pack_at = [&](int step) {
    return begin_pack + (step * warps + warp) * kQuad + quad_rank();
  };
  const auto pack_of = [&](const void* vector, int step) {
    return static_cast<const T*>(vector) + pack_at(step) * kPack<T>;
  };
  const auto copy_pack = [&](uint4(&to)[32], bool wanted, const T* vector, int step) {
    copy_16_bytes_or_zeros(shared_address(&to[lane]), pack_of(vector, step),
                           wanted && pack_at(step) < end_pack);
  };
  const auto prepare_weights = [&] {
#pragma unroll
    for (int step = 0; step < kTiledSteps; ++step) {
#pragma unroll
      for (int tile = 0; tile < kOutputTiles; ++tile) {
        const int64_t output = first_output + tile * kTileOutputs + quad();
        copy_pack(staged.weights[step][tile], output < a.outputs,
                  static_cast<const T*>(a.weight) + output * a.weight_stride, step);
      }
    }
    commit_copies();
    if constexpr (kNorm) {
      uint4 g[kTiledSteps], b[kTiledSteps];
#pragma unroll
      for (int step = 0; step < kTiledSteps; ++step) {
        g[step] = b[step] = {};
        const bool has = pack_at(step) < end_pack;
        load_16_bytes_if(has, pack_of(a.norm_weight, step), g[step]);
        load_16_bytes_if(has && quad() == 1 && a.norm_bias != nullptr, pack_of(a.norm_bias, step),
                         b[step]);
      }
      wait_for_copies<0>();
#pragma unroll
      for (int tile = 0; tile < kOutputTiles; ++tile) {
        NormSums<T> sums;
#pragma unroll
        for (int step = 0; step < kTiledSteps; ++step) {
          uint4& w = staged.weights[step][tile][lane];
          sums.add(w, g[step], b[step]);
        }
        sums.each([&](int vector, int column, float sum) {
          norm_sums[warp][vector][tile * kTileOutputs + column] = sum;
        });
      }
    }
  };
  if (continues_chain) {
    prepare_weights();
  }
  wait_for_previous_kernel();
  if (!continues_chain) {
    prepare_weights();
  }

  const auto* const input = static_cast<const T*>(a.input) + first_row * a.columns;
#pragma unroll
  for (int step = 0; step < kTiledSteps; ++step) {
#pragma unroll
    for (int group = 0; group < kRowGroups; ++group) {
      const int row = group * kRowGroup + quad();
      copy_pack(staged.rows[step][group], first_row + row < rows, input + row * a.columns, step);
    }
    commit_copies();
  }
  const auto shift_of = [&](int row) {
    return kNorm && a.norm == Norm::layer && first_row + row < rows
               ? to_compute(input[row * a.columns])
               : 0.0f;
  };
  float shift[kRowGroups];
#pragma unroll
  for (int group = 0; group < kRowGroups; ++group) {
    shift[group] = shift_of(group * kRowGroup + quad());
  }
  float sums[kRowTiles][kOutputTiles][4] = {};
  RowMoments of_lane[kRowGroups] = {};
#pragma unroll
  for (int step = 0; step < kTiledSteps; ++step) {
    wait_for_copy_group<kTiledSteps>(step);
    uint4 x[kRowGroups];
#pragma unroll
    for (int group = 0; group < kRowGroups; ++group) {
      x[group] = staged.rows[step][group][lane];
    }
    if constexpr (kNorm) {
#pragma unroll
      for (int group = 0; group < kRowGroups; ++group) {
        if (pack_at(step) < end_pack) {
          float values[kPack<T>];
          unpack<T>(x[group], values);
#pragma unroll
          for (const float value : values) {
            of_lane[group].add(value - shift[group]);
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      const uint4 &upper = x[2 * i], &lower = x[2 * i + 1];
#pragma unroll
      for (int j = 0; j < kOutputTiles; ++j) {
        const uint4 weights = staged.weights[step][j][lane];
        mma_16x8x16(sums[i][j], upper.x, lower.x, upper.y, lower.y, weights.x, weights.y, T());
        mma_16x8x16(sums[i][j], upper.z, lower.z, upper.w, lower.w, weights.z, weights.w, T());
      }
    }
  }
  __syncwarp();
  auto* const warp_sums = reinterpret_cast<float*>(&staged);
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int j = 0; j < kOutputTiles; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = i * kRowTile + half * kRowGroup + quad();
        float* const to = warp_sums + row * Block::kStride + j * kTileOutputs + 2 * quad_rank();
        *reinterpret_cast<float2*>(to) = {sums[i][j][2 * half], sums[i][j][2 * half + 1]};
      }
    }
  }
#pragma unroll
  for (int group = 0; kNorm && group < kRowGroups; ++group) {
    const RowMoments of_quad{quad_sum(of_lane[group].sum), quad_sum(of_lane[group].squares)};
    if (quad_rank() == 0) {
      moments[warp][group * kRowGroup + quad()] = of_quad;
    }
  }
  const auto sync = [&] {
    if (splits > 1) {
      BlockGroup::arrive();
      BlockGroup::wait();
    } else {
      __syncthreads();
    }
  };
  sync();
  // Over the warps of all blocks of the cluster.
  const auto each_partial = [&](auto* of_block, int stride, const auto& visit) {
    for (int from = 0; from < splits; ++from) {
      const auto* const remote = splits > 1 ? BlockGroup::remote(of_block, from) : of_block;
#pragma unroll 4
      for (int i = 0; i < warps; ++i) {
        visit(remote[i * stride]);
      }
    }
  };
  if constexpr (kNorm) {
    const int thread = static_cast<int>(threadIdx.x);
    for (int row = thread; row < kRows; row += static_cast<int>(blockDim.x)) {
      RowMoments total{0, 0};
      each_partial(&moments[0][row], kRows, [&](const RowMoments& of_warp) { total.add(of_warp); });
      row_norms[row] = RowNorm::of(total, a, shift_of(row));
    }
    for (int i = thread; i < 2 * kOutputs; i += static_cast<int>(blockDim.x)) {
      float total = 0;
      each_partial(&norm_sums[0][0][i], 2 * kOutputs, [&](float of_warp) { total += of_warp; });
      norm_totals[i / kOutputs][i % kOutputs] = total;
    }
    __syncthreads();
  }
  constexpr int kOfThread = 4;  // neighbouring outputs
  constexpr int kItems = kRows * kOutputs / kOfThread;
  const int items = kItems / splits;
  for (int i = static_cast<int>(threadIdx.x); i < items; i += static_cast<int>(blockDim.x)) {
    const int item = split * items + i;
    const int row = item / (kOutputs / kOfThread);
    const int column = item % (kOutputs / kOfThread) * kOfThread;
    const int64_t output = first_output + column;
    if (first_row + row >= rows || output >= a.outputs) {
      continue;
    }
    const int64_t index = (first_row + row) * a.outputs + output;
    float bias[kOfThread] = {}, residual[kOfThread] = {}, total[kOfThread] = {};
    const auto load = [&](const void* from, int64_t at, float (&to)[kOfThread]) {
      if (from != nullptr) {
        const uint2 bits = *reinterpret_cast<const uint2*>(static_cast<const T*>(from) + at);
        unpack_word(bits.x, to, T());
        unpack_word(bits.y, to + 2, T());
      }
    };
    load(a.bias, output, bias);
    load(a.residual, index, residual);
    each_partial(reinterpret_cast<float4*>(memory) + (row * Block::kStride + column) / 4,
                 sizeof(typename Block::Staged) / sizeof(float4), [&](const float4& of_warp) {
                   total[0] += of_warp.x;
                   total[1] += of_warp.y;
                   total[2] += of_warp.z;
                   total[3] += of_warp.w;
                 });
#pragma unroll
    for (int j = 0; j < kOfThread; ++j) {
      if constexpr (kNorm) {
        total[j] = row_norms[row].corrected(total[j], norm_totals[0][column + j],
                                            norm_totals[1][column + j]);
      }
      total[j] = activated(total[j] + bias[j], a.activation) + residual[j];
    }
    const uint2 bits{pack_word(total, T()), pack_word(total + 2, T())};
    *reinterpret_cast<uint2*>(static_cast<T*>(a.output) + index) = bits;
  }
  if (splits > 1) {  // others may still read this block's sums
    sync();
  }
}

}  // namespace warpfuse::cuda
