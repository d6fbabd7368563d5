#pragma once

#include "hopper/tma.cuh"
#include "rowwise/cuda/memory.cuh"
#include "rowwise/cuda/pack.cuh"

namespace warpfuse::cuda {

/// A warp's copies between global memory and shared memory, in packs where both addresses are as
/// far from a 16-byte boundary: by the TMA unit, or by the lanes where kByLanes and before compute
/// capability 9.0. All lanes call each function.
template <bool kByLanes>
class ChunkCopies {
 public:
  /// barrier: in shared memory, this warp's.
  __device__ ChunkCopies(Mbarrier& barrier, int lane) : barrier_(barrier), lane_(lane) {
    by_tma([&] {
      if (lane == 0) {
        barrier.init(1);
        fence_mbarrier_init();
      }
      __syncwarp();
    });
  }

  /// Starts a copy of `elements` elements to shared memory.
  template <typename T>
  __device__ __forceinline__ void load(const T* from, T* to, int elements) const {
    const Parts parts(from, to, elements);
    by_tma(
        [&] {
          if (parts.packs > 0 && is_elected()) {
            barrier_.expect_bytes(16 * parts.packs);
            bulk_load(shared_address(to + parts.head), from + parts.head, 16 * parts.packs,
                      barrier_, evict_first());
          }
        },
        [&] { load_packs(from, to, parts.head, 0, parts.packs); });
    copy_elements(from, to, parts, elements);
  }

  /// As load(), but only the packs that have elements [begin, end) of one of `pieces` pieces, which
  /// the lanes give; neighbours may share a pack.
  template <typename T>
  __device__ __forceinline__ void load_pieces(const T* from, T* to, int elements, int pieces,
                                              int begin, int end) const {
    constexpr int kElements = static_cast<int>(kPack<T>);
    const Parts parts(from, to, elements);
    const bool none = lane_ >= pieces || begin == end;
    const int last = none ? 0 : min((end - parts.head + kElements - 1) / kElements, parts.packs);
    const int before = __shfl_up_sync(~0u, last, 1);
    const int first = max(max(begin - parts.head, 0) / kElements, lane_ == 0 ? 0 : before);
    by_tma(
        [&] {
          const int bytes = 16 * max(last - first, 0), all = __reduce_add_sync(~0u, bytes);
          if (is_elected()) {
            barrier_.expect_bytes(all);
          }
          __syncwarp();
          if (bytes > 0) {
            const int at = parts.head + first * kElements;
            bulk_load(shared_address(to + at), from + at, bytes, barrier_, evict_first());
          }
        },
        [&] {
          for (int i = 0; i < pieces; ++i) {
            load_packs(from, to, parts.head, __shfl_sync(~0u, first, i), __shfl_sync(~0u, last, i));
          }
        });
    copy_elements(from, to, parts, elements);
  }

  /// Once, for all loads.
  __device__ void wait() const {
    by_tma(
        [&] {
          if (is_elected()) {
            barrier_.arrive();
          }
          barrier_.wait(0);
        },
        [] {
          commit_copies();
          wait_for_copies<0>();
        });
    __syncwarp();
  }

  /// Copies elements from shared memory, which the block may leave then.
  template <typename T>
  __device__ __forceinline__ void store(const T* from, T* to, int elements) const {
    const Parts parts(to, from, elements);
    by_tma(
        [&] {
          fence_async_proxy();
          __syncwarp();
          if (parts.packs > 0 && is_elected()) {
            bulk_store(to + parts.head, shared_address(from + parts.head), 16 * parts.packs);
          }
        },
        [&] {
          __syncwarp();
          for (int i = lane_; i < parts.packs; i += 32) {
            const int at = parts.head + i * kPack<T>;
            store_16_bytes(to + at, *reinterpret_cast<const uint4*>(from + at));
          }
        });
    copy_elements(from, to, parts, elements);
    by_tma([&] {
      if (is_elected()) {
        wait_for_bulk_reads();
      }
    });
  }

 private:
  /// Elements before the first pack, and packs.
  struct Parts {
    int head = 0, packs = 0;

    template <typename T>
    __device__ Parts(const T* global, const T* shared, int elements) {
      constexpr int kElements = static_cast<int>(kPack<T>);
      const int shift = pack_shift(global);
      if (shared_address(shared) / sizeof(T) % kElements == static_cast<unsigned>(shift)) {
        head = min(elements, (kElements - shift) % kElements);
        packs = (elements - head) / kElements;
      }
    }
  };

  template <typename Tma, typename Lanes>
  __device__ __forceinline__ static void by_tma(const Tma& tma, const Lanes& lanes) {
#if __CUDA_ARCH__ >= 900
    if constexpr (!kByLanes) {
      return tma();
    }
#endif
    lanes();
  }
  template <typename Tma>
  __device__ __forceinline__ static void by_tma(const Tma& tma) {
    by_tma(tma, [] {});
  }

  /// Packs [first, last) behind the head, by the lanes.
  template <typename T>
  __device__ __forceinline__ void load_packs(const T* from, T* to, int head, int first,
                                             int last) const {
    for (int i = first + lane_; i < last; i += 32) {
      const int at = head + i * kPack<T>;
      copy_16_bytes(shared_address(to + at), from + at);
    }
  }

  /// Those in no pack.
  template <typename T>
  __device__ __forceinline__ void copy_elements(const T* from, T* to, const Parts& parts,
                                                int elements) const {
    if (lane_ < parts.head) {
      to[lane_] = from[lane_];
    }
#pragma unroll 1
    for (int i = parts.head + parts.packs * static_cast<int>(kPack<T>) + lane_; i < elements;
         i += 32) {
      to[i] = from[i];
    }
  }

  Mbarrier& barrier_;
  int lane_;
};

/// Loads an element of shared memory, also where the compiler sees no need to.
template <typename T>
__device__ __forceinline__ T load_shared(const T* from) {
  if constexpr (sizeof(T) == 2) {
    unsigned short bits;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(bits) : "r"(shared_address(from)));
    return reinterpret_cast<const T&>(bits);
  } else {
    unsigned bits;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(bits) : "r"(shared_address(from)));
    return reinterpret_cast<const T&>(bits);
  }
}

/// Elements of a word of shared memory.
template <typename T>
constexpr int kWord = 4 / static_cast<int>(sizeof(T));

/// The elements of words of shared memory.
template <typename T>
__device__ __forceinline__ void unpack_words(const unsigned* words, Compute<T> (&values)[4]) {
#pragma unroll
  for (int i = 0; i < 4 / kWord<T>; ++i) {
    if constexpr (sizeof(T) == 2) {
      unpack_word(words[i], values + 2 * i, T());
    } else {
      values[i] = __uint_as_float(words[i]);
    }
  }
}

/// Stores four elements from the start of a word of shared memory on.
template <typename T>
__device__ __forceinline__ void store_four(T* to, const Compute<T> (&values)[4]) {
  auto* const words = reinterpret_cast<unsigned*>(to);
#pragma unroll
  for (int i = 0; i < 4 / kWord<T>; ++i) {
    if constexpr (sizeof(T) == 2) {
      words[i] = pack_word(values + 2 * i, T());
    } else {
      words[i] = __float_as_uint(values[i]);
    }
  }
}
/// Those of them that are in [begin, end).
template <typename T>
__device__ __forceinline__ void store_four(T* to, const Compute<T> (&values)[4], int begin,
                                           int end) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (i >= begin && i < end) {
      to[i] = from_compute<T>(values[i]);
    }
  }
}

}  // namespace warpfuse::cuda
