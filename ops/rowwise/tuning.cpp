#include "rowwise/tuning.h"

#include <algorithm>
#include <bit>

namespace warpfuse {
namespace {

// Lanes are powers of two, so that a warp splits evenly.
int lanes_for(int64_t packs, int lane_packs, int limit) {
  const int64_t lanes = (packs + lane_packs - 1) / lane_packs;
  return static_cast<int>(std::min<int64_t>(std::bit_ceil(static_cast<uint64_t>(lanes)), limit));
}

}  // namespace

const char* to_string(Tier tier) {
  switch (tier) {
    case Tier::warp:
      return "warp";
    case Tier::block:
      return "block";
    case Tier::stream:
      return "stream";
    case Tier::column:
      return "column";
  }
  return "?";
}

std::string RowPlan::to_string() const {
  return std::string(warpfuse::to_string(tier)) + ": " + std::to_string(lanes) + " lanes x " +
         std::to_string(lane_packs) + " packs, " + std::to_string(threads) + " threads, " +
         std::to_string(shared_bytes) + " bytes shared";
}

bool plan_tier(Tier tier, const RowShape& shape, size_t shared_limit, const RowTuning& tuning,
               RowPlan* plan) {
  switch (tier) {
    case Tier::warp: {
      if (shape.packs > int64_t{32} * tuning.warp_lane_packs) {
        return false;
      }
      const int lanes = lanes_for(shape.packs, 1, 32);
      const int64_t lane_packs = (shape.packs + lanes - 1) / lanes;
      *plan = {tier, lanes, static_cast<int>(std::bit_ceil(static_cast<uint64_t>(lane_packs))),
               tuning.warp_threads, 0};
      return true;
    }
    case Tier::block: {
      const int threads = std::max(tuning.block_min_threads, lanes_for(shape.packs, kBlockLanePacks,
                                                                       tuning.block_max_threads));
      if (shape.packs <= int64_t{threads} * kBlockLanePacks) {
        *plan = {tier, threads, kBlockLanePacks, threads, 0};
        return true;
      }
      if (shape.packs > static_cast<int64_t>(shared_limit / shape.cached_bytes)) {
        return false;
      }
      *plan = {tier, tuning.shared_threads, 0, tuning.shared_threads,
               static_cast<size_t>(shape.packs) * shape.cached_bytes};
      return true;
    }
    case Tier::stream:
      *plan = {tier, tuning.stream_threads, 0, tuning.stream_threads, 0};
      return true;
    case Tier::column:
      return false;
  }
  return false;
}

RowPlan plan_rows(const RowShape& shape, size_t shared_limit, const RowTuning& tuning) {
  RowPlan plan{};
  for (const Tier tier : {Tier::warp, Tier::block, Tier::stream}) {
    if (plan_tier(tier, shape, shared_limit, tuning, &plan)) {
      break;
    }
  }
  return plan;
}

int64_t packs_of_row(int64_t columns, int pack, bool aligned) {
  // Unaligned, a row may start at the last element of its first pack.
  return (columns + (aligned ? 0 : pack - 1) + pack - 1) / pack;
}

}  // namespace warpfuse
