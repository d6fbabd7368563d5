#include <algorithm>

#include "rowwise/cuda/device_limits.h"
#include "rowwise/cuda/kernel_launch.h"
#include "sample_tokens/sample_group.cuh"
#include "sample_tokens/sample_slice.cuh"
#include "sample_tokens/sample_tokens.h"
#include "sample_tokens/sample_top.cuh"

namespace warpfuse {
namespace {

using namespace cuda;

// --- the kernel -------------------------------------------------------------------------------

/// Draws a row's token, by a block or a cluster.
template <typename Format>
class RowSampler {
 public:
  using Key = typename Format::Key;

  union Memory {
    struct {
      DigitFinder digits;
      PartTable parts;
    } search;
    typename TopSampler<Format>::Memory top;
  };

  __device__ RowSampler(const SampleTokensArguments& arguments, BlockGroup& group, Memory& memory)
      : arguments_(arguments),
        group_(group),
        memory_(memory),
        row_(group.index()),
        slice_(static_cast<const typename Format::Bits*>(arguments.logits) +
                   row_ * arguments.row_stride,
               static_cast<int>(arguments.columns), group.rank() / 32, group.size() / 32) {}

  __device__ void greedy() {
    const Extremes<Format> ends = extremes();
    if (group_.rank() == 0) {
      write(is_drawable(ends) ? ends.token : -1);
    }
  }

  __device__ void sample() {
    const SampleRule& rule = arguments_.rule;
    const uint64_t bits = random_bits(arguments_, row_);  // loads before the first barrier
    if (has_small_top_k(rule)) {
      TopSampler<Format> top(arguments_, group_, memory_.top);
      if (top.sample(bits, [&](int token) { write(token); })) {
        return;
      }
      __syncthreads();  // memory_.top was read
    }
    memory_.search.digits.clear();
    Extremes<Format> ends = extremes();
    if (!is_drawable(ends)) {
      if (group_.rank() == 0) {
        write(-1);
      }
      return;
    }
    KeptKeys<Key> kept{-Format::kInfinity, -Format::kInfinity};
    if (rule.top_k > 0) {
      Search<Key> search(ends.max, ends.min);
      find_key(
          kept.bound, search, [](Key) { return uint64_t{1}; },
          [&](uint64_t total) { return min(total, static_cast<uint64_t>(rule.top_k)); });
      kept = KeptKeys<Key>::from(search.key());
      ends.min = search.key();
    }
    const TokenMass<Format> mass(ends.max, rule.scale);
    if (rule.has_top_p) {
      Search<Key> search(ends.max, ends.min);
      const uint64_t target = find_key(kept.bound, search, mass,
                                       [&](uint64_t total) { return mass_to_keep(total, rule); });
      kept = KeptKeys<Key>::to(search.key(), search.above(), target, mass(search.key()));
    }
    draw(kept, mass, bits);
  }

 private:
  using Slice = WarpSlice<Format>;
  using Pack = typename Slice::Pack;
  static constexpr int kPack = Slice::kPack;

  __device__ static bool is_drawable(const Extremes<Format>& ends) {
    return ends.max != Format::kNaN && ends.max != -Format::kInfinity;
  }

  __device__ void write(int token) { arguments_.tokens[row_] = token; }

  __device__ Extremes<Format> extremes() {
    using Find = FindExtremes<Format>;
    Extremes<Format> found = Extremes<Format>::none();
    slice_.template each<true>([&](const Pack& pack) {
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        Find::add(found, pack[i], pack.first + i);
      }
    });
    const Find find;
    return group_.total(find, find.merge(group_.lanes(), found));
  }

  /// Completes a search among the keys above `bound` and returns its target: target(total), from
  /// the total of mass(key) over tokens.
  template <typename Mass, typename Target>
  __device__ uint64_t find_key(Key bound, Search<Key>& search, const Mass& mass,
                               const Target& target) {
    uint64_t wanted = 0;
    for (bool first = true; !search.done(); first = false) {
      Histogram& histogram = memory_.search.digits.histogram(turn_);
      slice_.template each<false>([&](const Pack& pack) {
        unsigned digits[kPack];
        bool any = false;
#pragma unroll
        for (int i = 0; i < kPack; ++i) {
          const unsigned digit = search.digit(pack[i]);
          digits[i] = pack[i] > bound ? digit : static_cast<unsigned>(Histogram::kDigits);
          any |= digits[i] < Histogram::kDigits;
        }
        if (!any) {
          return;
        }
        uint64_t masses[kPack];
#pragma unroll
        for (int i = 0; i < kPack; ++i) {
          masses[i] = mass(pack[i]);
          // Keeps the masses out of the branches below, so that their instructions interleave.
          asm volatile("" : "+l"(masses[i]));
        }
#pragma unroll
        for (int i = 0; i < kPack; ++i) {
          if (digits[i] < Histogram::kDigits) {
            histogram.add(digits[i], masses[i]);
          }
        }
      });
      memory_.search.digits.find(group_, turn_, first, target, wanted, search);
      ++turn_;
    }
    return wanted;
  }

  __device__ void draw(const KeptKeys<Key>& kept, const TokenMass<Format>& mass, uint64_t bits) {
    const uint64_t min_mass = arguments_.rule.min_mass;
    const auto kept_mass = [&](Key key) {
      const uint64_t key_mass = mass(key);  // without a branch, so that instructions interleave
      return key > kept.bound && key_mass >= min_mass ? key_mass : 0;
    };
    PartSums sums{0, 0};
    slice_.template each<false>([&](const Pack& pack) {
      bool any = false;
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        sums.ties += pack[i] == kept.tie ? 1 : 0;
        any |= pack[i] > kept.bound;
      }
      if (any) {
#pragma unroll
        for (int i = 0; i < kPack; ++i) {
          sums.mass += kept_mass(pack[i]);
        }
      }
    });
    const PartSums total = memory_.search.parts.reduce(group_, sums);
    const uint64_t tie_mass = kept.ties > 0 ? mass(kept.tie) : 0;
    const Draw draw(bits, total.mass, tie_mass >= min_mass ? kept.ties : 0, tie_mass);
    uint64_t position = draw.position;
    if (memory_.search.parts.enter(group_, draw.is_tie, position)) {
      write_token_at(position, [&](Key key) {
        return draw.is_tie ? static_cast<uint64_t>(key == kept.tie) : kept_mass(key);
      });
    }
  }

  /// Writes the first token of the warp's part at which the running sum of part(key) exceeds
  /// `position`.
  template <typename Part>
  __device__ void write_token_at(uint64_t position, const Part& part) {
    slice_.each_in_order([&](const Pack& pack) {
      uint64_t parts[kPack], sum = 0;
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        parts[i] = part(pack[i]);
        sum += parts[i];
      }
      const uint64_t lanes_sum = inclusive_sum(sum);
      uint64_t before = lanes_sum - sum;
      if (before <= position && position < lanes_sum) {
        int token = pack.first;
#pragma unroll
        for (int i = 0; i < kPack - 1; ++i) {
          before += parts[i];
          token += before <= position ? 1 : 0;
        }
        write(token);
      }
      const uint64_t total = __shfl_sync(~0u, lanes_sum, 31);
      const bool found = position < total;
      position -= total;
      return found;
    });
  }

  const SampleTokensArguments& arguments_;
  BlockGroup& group_;
  Memory& memory_;
  int64_t row_;
  Slice slice_;
  int turn_ = 0;
};

template <typename Format, bool kGreedy>
__global__ void __launch_bounds__(kSampleThreads, kSampleMinBlocks)
    sample_tokens_kernel(const __grid_constant__ SampleTokensArguments arguments, int blocks) {
  __shared__ typename RowSampler<Format>::Memory memory;
  BlockGroup group(blocks);
  wait_for_previous_kernel();
  RowSampler<Format> sampler(arguments, group, memory);
  if constexpr (kGreedy) {
    sampler.greedy();
  } else {
    sampler.sample();
  }
}

// --- launch -----------------------------------------------------------------------------------

/// Blocks per row, where `active` blocks run at once.
int blocks_per_row(int64_t rows, int64_t packs, int64_t active) {
  const int max_blocks =
      std::min({device_limits().rows.cluster_blocks, tuning().cluster_blocks, kSampleMaxCluster});
  int blocks = 1;
  while (2 * blocks <= max_blocks && 2 * blocks * rows <= active &&
         int64_t{2} * blocks * kSampleMinPacks <= packs) {
    blocks *= 2;
  }
  return blocks;
}

template <typename Format, bool kGreedy>
cudaError_t launch(const SampleTokensArguments& arguments, cudaStream_t stream) {
  const auto kernel = sample_tokens_kernel<Format, kGreedy>;
  LaunchShape shape{Tier::block, 0, arguments.rows, kSampleThreads};
  // A second block per multiprocessor pays where all passes compute. Greedy rows and those with a
  // small top_k mostly wait: it gains less than larger clusters cost.
  const int64_t active = kGreedy || has_small_top_k(arguments.rule)
                             ? device_limits().rows.multiprocessors
                             : max_active_clusters(kernel, shape);
  shape.cluster =
      blocks_per_row(arguments.rows, arguments.columns / WarpSlice<Format>::kPack, active);
  shape.tier = shape.cluster > 1 ? Tier::cluster : Tier::block;
  shape.blocks = arguments.rows * shape.cluster;
  return launch_kernel(kernel, shape, stream, arguments, shape.cluster);
}

template <typename Format>
cudaError_t launch(const SampleTokensArguments& arguments, cudaStream_t stream) {
  return arguments.rule.greedy ? launch<Format, true>(arguments, stream)
                               : launch<Format, false>(arguments, stream);
}

}  // namespace

cudaError_t launch_cuda(const SampleTokensArguments& arguments, Workspace& /*workspace*/,
                        cudaStream_t stream) {
  switch (arguments.dtype) {
    case DType::float64:
      return launch<Float64Format>(arguments, stream);
    case DType::float32:
      return launch<Float32Format>(arguments, stream);
    case DType::float16:
      return launch<Float16Format>(arguments, stream);
    default:
      return launch<BFloat16Format>(arguments, stream);
  }
}

}  // namespace warpfuse
