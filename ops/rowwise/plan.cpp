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
  constexpr int kWidestBytes = 128;  // side by side: a line of the cache
  const RowLimits lowered = lower(limits, tuning);
  ColumnPlan plan{};
  for (const TuningEntry& entry : tuning.lines(shape.direction, shape.element_bytes)) {
    if (entry.tier != Tier::column || shape.columns > entry.packs ||
        shape.outer * shape.inner > entry.rows || entry.blocks > lowered.cluster_blocks) {
      continue;
    }
    const bool packs = entry.takes_packs();
    const size_t staged = size_t{16} * entry.threads * kColumnAheadPacks + kColumnExchangeBytes;
    if ((packs && shape.vector == 1) || (entry.ahead && staged > lowered.shared_bytes)) {
      continue;
    }
    plan = {entry.threads,
            entry.lane_packs,
            entry.blocks,
            packs ? shape.vector : 1,
            32,
            entry.ahead,
            0};
    if (!entry.ahead && entry.blocks == 1 && shape.columns <= entry.lane_packs) {
      plan.width = entry.threads;
      plan.tiles = ceil_divide(shape.outer * ceil_divide(shape.inner, plan.vector), plan.width);
      return plan;
    }
    if (entry.lane_packs > 0) {
      // The widest tile whose columns the threads can hold.
      const int64_t held = int64_t{entry.threads} * entry.lane_packs * entry.blocks;
      plan.width = std::min(kWidestBytes / (plan.vector * shape.element_bytes), 32);
      while (plan.width > 1 && held / plan.width < shape.columns) {
        plan.width /= 2;
      }
      if (held / plan.width < shape.columns) {
        continue;
      }
    }
    break;
  }
  const int64_t across = int64_t{plan.width} * plan.vector;
  plan.tiles = shape.outer * ceil_divide(shape.inner, across);
  return plan;
}

}  // namespace warpfuse
