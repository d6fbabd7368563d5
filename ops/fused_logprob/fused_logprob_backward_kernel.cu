#include <algorithm>
#include <bit>
#include <type_traits>

#include "fused_logprob/fused_logprob.h"
#include "fused_logprob/logprob_gradient.cuh"
#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/cuda/kernel_launch.h"
#include "rowwise/cuda/pack.cuh"

namespace warpfuse {
namespace {

using namespace cuda;

// --- launch parameters, measured on an H200 ---------------------------------------------------

constexpr int kThreads = 256;      // per block
constexpr int kMinBlocks = 3;      // per multiprocessor, for the register allocation
constexpr int kThreadPacks = 4;    // that a thread works on at once, while it loads as many more
constexpr int kSplitPacks = 2048;  // of a row, for one block; the last split has up to half more

// --- device -----------------------------------------------------------------------------------

/// Stores 16 bytes evict-first: nothing reads the gradient soon.
__device__ __forceinline__ void store_16_bytes_streaming(void* address, const uint4& bits) {
  asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(bits.x),
               "r"(bits.y), "r"(bits.z), "r"(bits.w)
               : "memory");
}

/// 16 bytes of `low` and `high` in a row, from byte `shift` on.
template <typename T>
__device__ __forceinline__ uint4 shifted(const uint4& low, const uint4& high, int shift) {
  unsigned words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  const bool by_8 = (shift & 8) != 0, by_4 = (shift & 4) != 0, by_2 = (shift & 2) != 0;
#pragma unroll
  for (int i = 0; i < 6; ++i) {
    words[i] = by_8 ? words[i + 2] : words[i];
  }
#pragma unroll
  for (int i = 0; i < 5; ++i) {
    words[i] = by_4 ? words[i + 1] : words[i];
  }
  if (sizeof(T) == 2 && by_2) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = __byte_perm(words[i], words[i + 1], 0x5432);
    }
  }
  return {words[0], words[1], words[2], words[3]};
}

/// Turns the first and the last pack into edge elements.
template <typename T>
__device__ void drop_outer_packs(PackedRow<T>& layout) {
  const int dropped = min(layout.packs, 2);
  layout.head += layout.packs > 0 ? kPack<T> : 0;
  layout.edges += dropped * kPack<T>;
  layout.packs -= dropped;
}

/// A pack of logits, aligned as the gradient's pack.
template <typename T>
struct AlignedPack {
  uint4 own;

  __device__ void load(const T* from, bool) { own = load_16_bytes(from); }
  __device__ uint4 bits(const T*, bool) const { return own; }
};

/// A pack of logits that straddles two aligned packs. A lane loads the one in which its pack begins
/// and gets the other from the next lane; the `last` lane loads both.
template <typename T>
struct ShiftedPack {
  uint4 own, next;

  __device__ void load(const T* from, bool last) {
    const T* const start = from - offset(from) / static_cast<int>(sizeof(T));
    own = load_16_bytes(start);
    if (last) {
      next = load_16_bytes(start + kPack<T>);
    }
  }

  /// Called by all lanes of the warp.
  __device__ uint4 bits(const T* from, bool last) const {
    constexpr unsigned kAll = 0xffffffffu;
    const uint4 from_next_lane{__shfl_down_sync(kAll, own.x, 1), __shfl_down_sync(kAll, own.y, 1),
                               __shfl_down_sync(kAll, own.z, 1), __shfl_down_sync(kAll, own.w, 1)};
    return shifted<T>(own, last ? next : from_next_lane, offset(from));
  }

 private:
  __device__ static int offset(const T* from) {
    return static_cast<int>(reinterpret_cast<uintptr_t>(from) % 16);
  }
};

/// `1 << row_threads_log2` threads per row, or `splits` blocks. kSameAlignment: packs of logits and
/// gradient are aligned alike in every row; otherwise a row has at least 32 threads.
template <typename T, bool kEntropy, bool kSameAlignment>
__global__ void __launch_bounds__(kThreads, kMinBlocks)
    logprob_gradient_kernel(FusedLogprobBackwardArguments arguments,
                            Temperature<Compute<T>> temperature, int splits, int row_threads_log2) {
  using C = Compute<T>;
  constexpr int kPacks = kSameAlignment ? kThreadPacks : 1;
  wait_for_previous_kernel();
  const int row_threads = 1 << row_threads_log2;
  // In reverse order: a forward just before leaves the last rows in the L2 cache.
  const unsigned block = gridDim.x - 1 - blockIdx.x;
  const int64_t index = static_cast<int64_t>(block / splits) * (kThreads >> row_threads_log2) +
                        (threadIdx.x >> row_threads_log2);
  if (index >= arguments.layout.rows) {
    return;
  }
  const int split = static_cast<int>(block % splits);
  const int rank = static_cast<int>(threadIdx.x) & (row_threads - 1);
  const int64_t columns = arguments.layout.columns;
  const T* x = static_cast<const T*>(arguments.logits) + arguments.layout.offset(index);
  T* dx = static_cast<T*>(arguments.grad_logits) + arguments.grad_layout.offset(index);
  PackedRow<T> layout(dx, columns);
  if constexpr (!kSameAlignment) {
    drop_outer_packs(layout);  // their logits share aligned packs with other rows
  }
  // Starts at a line of the cache, so the first packs may lie before the row.
  const int begin = split * kSplitPacks - (kSameAlignment ? layout.line : 0);
  const int end = split == splits - 1 ? layout.packs : min(layout.packs, begin + kSplitPacks);
  using Pack = std::conditional_t<kSameAlignment, AlignedPack<T>, ShiftedPack<T>>;
  const int lane = kSameAlignment ? 0 : rank % 32;
  const auto exists = [&](int pack) {  // false for negative ones
    return static_cast<unsigned>(pack) < static_cast<unsigned>(end);
  };
  const auto is_last = [&](int pack) { return lane == 31 || pack == end - 1; };
  const auto load = [&](int first, Pack(&packs)[kPacks]) {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int pack = first + i * row_threads;
      if (exists(pack)) {
        packs[i].load(x + layout.column(pack), is_last(pack));
      }
    }
  };
  Pack packs[kPacks];
  load(begin + rank, packs);  // while the row's target and gradients are loaded
  const RowGradient<C, kEntropy> gradient(arguments, index, temperature);
  for (int first = begin + rank; first - lane < end; first += kPacks * row_threads) {
    Pack next[kPacks];
    if (!gradient.is_zero()) {
      load(first + kPacks * row_threads, next);
    }
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int pack = first + i * row_threads;
      const int64_t column = layout.column(pack);
      uint4 bits{0, 0, 0, 0};
      if (!gradient.is_zero()) {
        bits = packs[i].bits(x + column, is_last(pack));
      }
      if (exists(pack)) {
        if (!gradient.is_zero()) {
          C values[kPack<T>];
          unpack<T>(bits, values);
          gradient.apply(column, values);
          bits = pack_bits<T>(values);
        }
        store_16_bytes_streaming(dx + column, bits);
      }
      packs[i] = next[i];
    }
  }
  if (split == 0) {
    for (int edge = rank; edge < layout.edges; edge += row_threads) {
      const int64_t column = layout.edge_column(edge);
      C values[1] = {C(0)};
      if (!gradient.is_zero()) {
        values[0] = to_compute(x[column]);
        gradient.apply(column, values);
      }
      dx[column] = from_compute<T>(values[0]);
    }
  }
}

// --- launch -----------------------------------------------------------------------------------

template <typename T, bool kEntropy, bool kSameAlignment>
cudaError_t launch_backward(const FusedLogprobBackwardArguments& arguments, cudaStream_t stream) {
  if (!fits_packs<T>(arguments.layout.columns)) {
    return cudaErrorInvalidValue;
  }
  const int64_t packs = arguments.layout.columns / kPack<T>;  // at most, whatever the alignment
  const int64_t min_threads = kSameAlignment ? 1 : 32;
  const int row_threads = static_cast<int>(std::clamp<int64_t>(
      std::bit_ceil(static_cast<uint64_t>((packs + kThreadPacks - 1) / kThreadPacks)), min_threads,
      kThreads));
  const int64_t block_rows = kThreads / row_threads;
  const int64_t splits =
      block_rows > 1 ? 1 : std::max<int64_t>(1, (packs + kSplitPacks / 2) / kSplitPacks);
  const LaunchShape shape{Tier::block, 0,
                          (arguments.layout.rows + block_rows - 1) / block_rows * splits, kThreads};
  return launch_kernel(logprob_gradient_kernel<T, kEntropy, kSameAlignment>, shape, stream,
                       arguments, Temperature<Compute<T>>(arguments.temperature),
                       static_cast<int>(splits),
                       std::countr_zero(static_cast<unsigned>(row_threads)));
}

template <typename T>
bool has_same_alignment(const FusedLogprobBackwardArguments& arguments) {
  const LogitRows &x = arguments.layout, &dx = arguments.grad_layout;
  const T* logits = static_cast<const T*>(arguments.logits);
  const T* gradient = static_cast<const T*>(arguments.grad_logits);
  // The layouts may divide their rows by different inner dimensions.
  const bool same_steps = x.inner == dx.inner || (x.inner == x.rows && dx.inner == dx.rows);
  return same_steps && same_alignment(logits, x.inner_stride, gradient, dx.inner_stride) &&
         same_alignment(logits, x.outer_stride, gradient, dx.outer_stride);
}

}  // namespace

cudaError_t launch_cuda(const FusedLogprobBackwardArguments& arguments, Workspace& /*workspace*/,
                        cudaStream_t stream) {
  return dispatch(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool entropy = arguments.grad_entropy != nullptr;
    const auto launch =
        has_same_alignment<T>(arguments)
            ? (entropy ? launch_backward<T, true, true> : launch_backward<T, false, true>)
            : (entropy ? launch_backward<T, true, false> : launch_backward<T, false, false>);
    return launch(arguments, stream);
  });
}

}  // namespace warpfuse
