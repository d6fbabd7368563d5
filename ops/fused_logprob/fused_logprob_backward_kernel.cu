#include <algorithm>
#include <bit>
#include <type_traits>

#include "fused_logprob/fused_logprob_kernel.h"
#include "fused_logprob/logprob_gradient.cuh"
#include "fused_logprob/logprob_memory.cuh"
#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/cuda/kernel_launch.h"

namespace warpfuse {
namespace {

using namespace cuda;

constexpr int kThreads = 256;        // of a block
constexpr int kLanePacks = 4;        // that a thread works on at once; as many are on their way
constexpr int kSegmentPacks = 2048;  // of a row, that a block has; the last one up to half more

/// The 16 bytes `shift` bytes after the start of 32 that are `low` and then `high`.
template <typename T>
__device__ __forceinline__ uint4 shifted(const uint4& low, const uint4& high, int shift) {
  unsigned words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  const bool two = (shift & 8) != 0, one = (shift & 4) != 0, half = (shift & 2) != 0;
#pragma unroll
  for (int i = 0; i < 6; ++i) {
    words[i] = two ? words[i + 2] : words[i];
  }
#pragma unroll
  for (int i = 0; i < 5; ++i) {
    words[i] = one ? words[i + 1] : words[i];
  }
  if (sizeof(T) == 2 && half) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = __byte_perm(words[i], words[i + 1], 0x5432);
    }
  }
  return {words[0], words[1], words[2], words[3]};
}

/// Makes edges of the first and the last pack.
template <typename T>
__device__ void drop_outer_packs(PackedRow<T>& layout) {
  const int dropped = min(layout.packs, 2);
  layout.head += layout.packs > 0 ? kPack<T> : 0;
  layout.edges += dropped * kPack<T>;
  layout.packs -= dropped;
}

/// How a thread reads packs of the logits that lie in memory as the gradient's do.
template <typename T>
struct AlignedPack {
  uint4 own;

  __device__ void read(const T* from, bool) { own = load_own_16_bytes(from); }
  __device__ uint4 bits(const T*, bool) const { return own; }
};

/// How it reads packs that lie across those of memory: it reads the one in which its own begins,
/// and has the rest from the next lane, whose pack is the next unless it is the `last` of the warp.
template <typename T>
struct ShiftedPack {
  uint4 own, next;

  __device__ void read(const T* from, bool last) {
    const T* const start = from - offset(from) / static_cast<int>(sizeof(T));
    own = load_own_16_bytes(start);
    if (last) {
      next = load_own_16_bytes(start + kPack<T>);
    }
  }

  /// The pack's bits. All lanes of the warp take part.
  __device__ uint4 bits(const T* from, bool last) const {
    constexpr unsigned kAll = 0xffffffffu;
    const uint4 of_next{__shfl_down_sync(kAll, own.x, 1), __shfl_down_sync(kAll, own.y, 1),
                        __shfl_down_sync(kAll, own.z, 1), __shfl_down_sync(kAll, own.w, 1)};
    return shifted<T>(own, last ? next : of_next, offset(from));
  }

 private:
  __device__ static int offset(const T* from) {
    return static_cast<int>(reinterpret_cast<uintptr_t>(from) % 16);
  }
};

/// A row by `lanes` threads, or by the blocks of `segments`. `kAlike`: the packs of the gradient
/// lie in memory as those of the logits do; else a row has 32 threads at least.
template <typename T, bool kEntropy, bool kAlike>
__global__ void __launch_bounds__(kThreads, 3)
    gradient_kernel(FusedLogprobBackwardArguments arguments, Temperature<Compute<T>> temperature,
                    int segments, int lanes_log2) {
  using C = Compute<T>;
  constexpr int kPacks = kAlike ? kLanePacks : 1;
  wait_for_previous_kernel();
  const int lanes = 1 << lanes_log2;
  // In reverse: the rows that a forward just before has read last are still in the cache.
  const unsigned block = gridDim.x - 1 - blockIdx.x;
  const int64_t index = static_cast<int64_t>(block / segments) * (kThreads >> lanes_log2) +
                        (threadIdx.x >> lanes_log2);
  if (index >= arguments.layout.rows) {
    return;
  }
  const int segment = static_cast<int>(block % segments);
  const int rank = static_cast<int>(threadIdx.x) & (lanes - 1);
  const int64_t columns = arguments.layout.columns;
  const T* x = static_cast<const T*>(arguments.logits) + row_offset(arguments.layout, index);
  T* dx = static_cast<T*>(arguments.grad_logits) + row_offset(arguments.grad_layout, index);
  PackedRow<T> layout(dx, columns);
  if constexpr (!kAlike) {
    drop_outer_packs(layout);  // to read them would be to read beyond the row
  }
  // A warp's accesses begin with a line of the cache, so that the first packs of a row may be none.
  const int begin = segment * kSegmentPacks - (kAlike ? layout.line : 0);
  const int end = segment == segments - 1 ? layout.packs : min(layout.packs, begin + kSegmentPacks);
  using Reader = std::conditional_t<kAlike, AlignedPack<T>, ShiftedPack<T>>;
  const int in_warp = kAlike ? 0 : rank % 32;
  const auto is_own = [&](int pack) {  // not negative either
    return static_cast<unsigned>(pack) < static_cast<unsigned>(end);
  };
  const auto is_last = [&](int pack) { return in_warp == 31 || pack == end - 1; };
  const auto read = [&](int first, Reader(&packs)[kPacks]) {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int pack = first + i * lanes;
      if (is_own(pack)) {
        packs[i].read(x + layout.column(pack), is_last(pack));
      }
    }
  };
  Reader packs[kPacks];
  read(begin + rank, packs);  // before it is known whether the row has a gradient
  const RowGradient<C, kEntropy> gradient(arguments, index, temperature);
  for (int first = begin + rank; first - in_warp < end; first += kPacks * lanes) {
    Reader next[kPacks];
    if (!gradient.zero()) {
      read(first + kPacks * lanes, next);
    }
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int pack = first + i * lanes;
      const int64_t column = layout.column(pack);
      uint4 bits{0, 0, 0, 0};
      if (!gradient.zero()) {
        bits = packs[i].bits(x + column, is_last(pack));
      }
      if (is_own(pack)) {
        if (!gradient.zero()) {
          C values[kPack<T>];
          unpack<T>(bits, values);
          gradient.apply(column, values);
          bits = pack_bits<T>(values);
        }
        stream_16_bytes(dx + column, bits);
      }
      packs[i] = next[i];
    }
  }
  if (segment == 0) {
    for (int edge = rank; edge < layout.edges; edge += lanes) {
      const int64_t column = layout.edge_column(edge);
      C values[1] = {C(0)};
      if (!gradient.zero()) {
        values[0] = to_compute(x[column]);
        gradient.apply(column, values);
      }
      dx[column] = from_compute<T>(values[0]);
    }
  }
}

template <typename T, bool kEntropy, bool kAlike>
cudaError_t launch_gradient(const FusedLogprobBackwardArguments& arguments, cudaStream_t stream) {
  // A row has these packs at most; how many it has depends on where it lies.
  const int64_t packs = arguments.layout.columns / kPack<T>;
  const int64_t least = kAlike ? 1 : 32;
  const int lanes = static_cast<int>(std::clamp<int64_t>(
      std::bit_ceil(static_cast<uint64_t>((packs + kLanePacks - 1) / kLanePacks)), least,
      kThreads));
  const int64_t rows_of_block = kThreads / lanes;
  const int64_t segments =
      lanes < kThreads ? 1 : std::max<int64_t>(1, (packs + kSegmentPacks / 2) / kSegmentPacks);
  const LaunchShape shape{Tier::block, 0,
                          (arguments.layout.rows + rows_of_block - 1) / rows_of_block * segments,
                          kThreads};
  return launch_kernel(gradient_kernel<T, kEntropy, kAlike>, shape, stream, arguments,
                       make_temperature<Compute<T>>(arguments.temperature),
                       static_cast<int>(segments), std::countr_zero(static_cast<unsigned>(lanes)));
}

template <typename T>
bool alike(const FusedLogprobBackwardArguments& arguments) {
  const LogitRows &x = arguments.layout, &dx = arguments.grad_layout;
  const T* logits = static_cast<const T*>(arguments.logits);
  const T* gradient = static_cast<const T*>(arguments.grad_logits);
  // The two may count their rows by different inner dimensions.
  const bool same_steps = x.inner == dx.inner || (x.inner == x.rows && dx.inner == dx.rows);
  return same_steps && same_alignment(logits, x.inner_stride, gradient, dx.inner_stride) &&
         same_alignment(logits, x.outer_stride, gradient, dx.outer_stride);
}

}  // namespace

cudaError_t fused_logprob_backward_cuda(const FusedLogprobBackwardArguments& arguments,
                                        cudaStream_t stream) {
  return dispatch(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool entropy = arguments.grad_entropy != nullptr;
    const auto launch =
        alike<T>(arguments)
            ? (entropy ? launch_gradient<T, true, true> : launch_gradient<T, false, true>)
            : (entropy ? launch_gradient<T, true, false> : launch_gradient<T, false, false>);
    return launch(arguments, stream);
  });
}

}  // namespace warpfuse
