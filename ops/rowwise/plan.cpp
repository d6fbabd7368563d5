#include <algorithm>
#include <array>
#include <bit>

#include "rowwise/tuning.h"

namespace warpfuse {
namespace {

int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Few rows that all multiprocessors together keep as much of as they can, a block each; false where
// the two kernels of a split are at least as fast.
bool plan_resident(const TuningEntry& entry, const RowShape& shape, const RowLimits& limits,
                   RowPlan* plan) {
  const int64_t most = limits.multiprocessors / shape.rows;
  const int64_t parts = entry.blocks > 0 ? std::min<int64_t>(entry.blocks, most) : most;
  const int64_t slot_bytes = int64_t{shape.kind.pack_bytes()} * entry.threads;
  const int64_t room = static_cast<int64_t>(limits.shared_bytes) / slot_bytes;
  if (!limits.cooperative || parts < 2 || room < 1) {
    return false;
  }
  // A cache line more: parts begin with one.
  const int64_t part = ceil_divide(shape.packs, parts) + kLinePacks;
  if (entry.blocks == 0) {
    // Shorter parts are read at once, so that a barrier costs more than a second kernel; of longer
    // ones little can be kept; and multiprocessors that idle cost more than is gained.
    constexpr int kMostOfRoom = 3;
    if (part < int64_t{kStreamLanePacks} * entry.threads ||
        part > kMostOfRoom * room * entry.threads ||
        8 * parts * shape.rows < int64_t{7} * limits.multiprocessors) {
      return false;
    }
  }
  plan->blocks = static_cast<int>(parts);
  plan->shared_bytes =
      static_cast<size_t>(std::min(room, ceil_divide(part, entry.threads)) * slot_bytes);
  return true;
}

// The plan of an entry for a shape; false where it cannot take it.
bool plan_entry(const TuningEntry& entry, const RowShape& shape, const KernelSet& kernels,
                const RowLimits& limits, RowPlan* plan) {
  *plan = {entry.tier,  32, entry.lane_packs, entry.threads, std::max(entry.blocks, 1),
           entry.ahead, 0};
  switch (entry.tier) {
    case Tier::warp: {
      const int64_t needed =
          std::max({int64_t{1}, ceil_divide(shape.packs, entry.lane_packs), shape.edges});
      const int64_t lanes =
          std::min<int64_t>(32, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(needed))));
      plan->lanes = static_cast<int>(lanes);
      plan->lane_packs =
          kernels.warp.at_least(std::max<int64_t>(1, ceil_divide(shape.packs, lanes)));
      return plan->lane_packs > 0;
    }
    case Tier::chunk: {
      const int64_t pack = 16 / shape.kind.element_bytes;
      // At most, with a slot before a row that begins in the middle of a word.
      const int64_t slots = (shape.packs + 1) * pack - (shape.kind.element_bytes == 2 ? 0 : 1);
      plan->lane_packs = chunk_slots(shape.kind);
      plan->lanes = static_cast<int>(
          std::bit_ceil(static_cast<uint64_t>(ceil_divide(slots, plan->lane_packs))));
      return kernels.chunk && shape.chunk && shape.edges > 0 && plan->lanes <= 32;
    }
    case Tier::span: {
      const bool warp = kernels.span_warp.contains(entry.lane_packs) &&
                        shape.packs <= int64_t{32} * entry.lane_packs;
      const bool block = kernels.span_block.contains(entry.lane_packs) && entry.threads > 32 &&
                         shape.packs <= int64_t{entry.threads} * entry.lane_packs;
      plan->lanes = warp ? 32 : entry.threads;
      return shape.span && (warp || block);
    }
    case Tier::block:
    case Tier::cluster: {
      if (plan->blocks > limits.cluster_blocks ||
          !kernels.block_packs(entry.ahead).contains(entry.lane_packs)) {
        return false;
      }
      const int64_t threads = int64_t{entry.threads} * plan->blocks;
      if (entry.lane_packs > 0 && shape.packs > threads * entry.lane_packs) {
        return false;
      }
      if (entry.ahead || entry.lane_packs == 0) {
        const int64_t slots =
            entry.lane_packs > 0
                ? entry.lane_packs
                : std::max<int64_t>(1, ceil_divide(shape.packs + shape.shift, threads));
        plan->shared_bytes = static_cast<size_t>(slots * entry.threads * shape.kind.pack_bytes());
      }
      return plan->shared_bytes <= limits.shared_bytes;
    }
    case Tier::stream: {
      if (entry.ahead) {
        return kernels.cooperative && plan_resident(entry, shape, limits, plan);
      }
      // Many rows fill the GPU as they are; few are split until a thread reads its packs at once.
      const int64_t useful = ceil_divide(shape.packs, int64_t{kStreamLanePacks} * entry.threads);
      const int64_t wanted = entry.blocks > 0                                    ? entry.blocks
                             : shape.rows >= int64_t{2} * limits.multiprocessors ? 1
                                                                                 : useful;
      const int64_t room = static_cast<int64_t>(kSplitBytes / kSplitPartBytes) / shape.rows;
      plan->blocks = static_cast<int>(std::max<int64_t>(1, std::min({wanted, useful, room})));
      return true;
    }
    default:
      break;
  }
  return false;
}

// Rows whose threads are lanes of one warp, so that warps exchange nothing; false where what a warp
// reads at once would be scattered too much.
bool plan_lanes(const TuningEntry& entry, const ColumnShape& shape, ColumnPlan* plan) {
  constexpr int64_t kRunBytes = 64;  // two sectors of memory
  if (entry.lane_packs == 0 || entry.ahead || entry.blocks > 1) {
    return false;
  }
  const int64_t column_bytes = shape.inner * shape.element_bytes;
  auto depths = static_cast<int64_t>(
      std::bit_ceil(static_cast<uint64_t>(ceil_divide(shape.columns, entry.lane_packs))));
  // Columns that are short follow one another: more lanes per row read neighbouring ones.
  while (depths < 32 && column_bytes * depths < kRunBytes && 8 * depths <= shape.columns) {
    depths *= 2;
  }
  const int64_t lanes = 32 / depths;
  if (lanes == 0 ||
      (column_bytes > kRunBytes && lanes * plan->vector * shape.element_bytes < kRunBytes)) {
    return false;
  }
  plan->lanes = static_cast<int>(lanes);
  plan->width = entry.threads / 32 * plan->lanes;
  plan->tiles = ceil_divide(shape.outer * ceil_divide(shape.inner, plan->vector), plan->width);
  return true;
}

}  // namespace

RowLimits lower(const RowLimits& limits, const Tuning& tuning) {
  return {std::min(limits.shared_bytes, tuning.shared_bytes),
          std::min(limits.cluster_blocks, tuning.cluster_blocks), limits.multiprocessors,
          limits.cooperative};
}

std::string RowPlan::to_string() const {
  return std::string(warpfuse::to_string(tier)) + ": " + std::to_string(lanes) + " lanes x " +
         std::to_string(lane_packs) + " packs, " + std::to_string(threads) + " threads x " +
         std::to_string(blocks) + (ahead ? " blocks ahead, " : " blocks, ") +
         std::to_string(shared_bytes) + " bytes shared";
}

const TuningEntry* plan_line(const RowShape& shape, const RowLimits& limits, const Tuning& tuning,
                             RowPlan* plan) {
  const RowLimits lowered = lower(limits, tuning);
  const KernelSet kernels = kernel_set(shape.kind);
  for (const TuningEntry& entry : tuning.lines(shape.kind.direction, shape.kind.element_bytes)) {
    if (shape.packs <= entry.packs && shape.rows <= entry.rows && entry.is_for(shape.kind) &&
        plan_entry(entry, shape, kernels, lowered, plan)) {
      return &entry;
    }
  }
  return nullptr;
}

RowPlan plan_rows(const RowShape& shape, const RowLimits& limits, const Tuning& tuning) {
  RowPlan plan{};
  plan_line(shape, limits, tuning, &plan);
  return plan;
}

RowPlan current_plan(const RowShape& shape, const RowLimits& limits) {
  struct Key {
    const Tuning* tuning;  // lives as long as the process
    RowLimits limits;
    RowShape shape;

    bool operator==(const Key&) const = default;
  };
  struct Plan {
    Key key;
    RowPlan plan;
  };
  thread_local std::array<Plan, 16> plans{};
  const Key key{&tuning(), limits, shape};
  // Fibonacci hashing to 4 bits: sizes are multiples of powers of two.
  const auto sum = static_cast<uint64_t>(shape.packs + 31 * shape.rows) +
                   static_cast<uint64_t>(shape.kind.element_bytes) +
                   (shape.kind.direction == Direction::forward ? 0 : 1);
  Plan& known = plans[sum * 0x9E3779B97F4A7C15U >> 60U];
  if (known.key != key) {
    known = {key, plan_rows(shape, limits, *key.tuning)};
  }
  return known.plan;
}

bool plan_tier(Tier tier, const RowShape& shape, const RowLimits& limits, const Tuning& tuning,
               RowPlan* plan) {
  const RowLimits lowered = lower(limits, tuning);
  const KernelSet kernels = kernel_set(shape.kind);
  for (const TuningEntry& entry : tuning.lines(shape.kind.direction, shape.kind.element_bytes)) {
    if (entry.tier == tier && entry.is_for(shape.kind) &&
        plan_entry(entry, shape, kernels, lowered, plan)) {
      return true;
    }
  }
  if (tier == Tier::warp && kernels.warp.contains(0)) {
    *plan = {Tier::warp, 32, 0, 256, 1, false, 0};
    return true;
  }
  return false;
}

ColumnPlan plan_columns(const ColumnShape& shape, const RowLimits& limits, const Tuning& tuning) {
  constexpr int kWidestBytes = 128;
  const RowLimits lowered = lower(limits, tuning);
  ColumnPlan plan{};
  for (const TuningEntry& entry : tuning.lines(shape.direction, shape.element_bytes)) {
    if (entry.tier != Tier::column || shape.columns > entry.packs ||
        shape.outer * shape.inner > entry.rows || entry.blocks > lowered.cluster_blocks) {
      continue;
    }
    const bool packs = entry.takes_packs();
    const size_t staged = size_t{16} * entry.threads * kColumnAheadPacks + kColumnExchangeBytes;
    if ((packs && shape.vector * shape.element_bytes < 16) ||
        (entry.ahead && staged > lowered.shared_bytes)) {
      continue;
    }
    const int vector = packs ? shape.vector
                       : entry.lane_packs > 0 && shape.element_bytes == 2
                           ? std::min(shape.vector, 2)
                           : 1;
    plan = {entry.threads, entry.lane_packs, entry.blocks, vector, 0, 0, entry.ahead, 0};
    if (plan_lanes(entry, shape, &plan)) {
      return plan;
    }
    // The widest tile, up to a line of the cache, that has rows for its threads and whose columns
    // they can hold.
    const int widest = std::min(kWidestBytes / (plan.vector * shape.element_bytes), 32);
    plan.width = widest;
    while (plan.width > 1 && int64_t{plan.width / 2} * plan.vector >= shape.inner) {
      plan.width /= 2;
    }
    const bool narrow = plan.width < widest;
    if (plan.lane_packs > 0) {
      const auto fits = [&](int threads, int blocks) {
        return int64_t{threads} * plan.lane_packs * blocks / plan.width >= shape.columns;
      };
      while (plan.width > 1 && !fits(plan.threads, plan.blocks)) {
        plan.width /= 2;
      }
      if (!fits(plan.threads, plan.blocks)) {
        continue;
      }
      // Few rows need fewer threads than the line has.
      while (narrow && plan.blocks > 1 && fits(plan.threads, plan.blocks / 2)) {
        plan.blocks /= 2;
      }
      while (narrow && plan.threads % 64 == 0 && fits(plan.threads / 2, plan.blocks)) {
        plan.threads /= 2;
      }
    }
    break;
  }
  const int64_t across = int64_t{plan.width} * plan.vector;
  plan.tiles = shape.outer * ceil_divide(shape.inner, across);
  return plan;
}

}  // namespace warpfuse
