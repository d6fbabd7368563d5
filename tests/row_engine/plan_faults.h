#pragma once

// What plans of rows and columns must hold.

#include <rowwise/tuning.h>

#include <algorithm>
#include <bit>
#include <string>

/// What is wrong with the plan of a shape; empty when all of the row has its place.
inline std::string fault(const warpfuse::RowPlan& plan, const warpfuse::RowShape& shape,
                         const warpfuse::RowLimits& limits) {
  const int64_t threads = int64_t{plan.threads} * plan.blocks;
  const int64_t slots = std::max<int64_t>(1, (shape.packs + threads - 1) / threads);
  // In shared memory a row lies as it does in lines of the cache.
  const int64_t shared = std::max<int64_t>(1, (shape.packs + shape.shift + threads - 1) / threads);
  const auto copied = static_cast<size_t>((plan.lane_packs > 0 ? slots : shared) * plan.threads *
                                          shape.kind.pack_bytes());
  if (plan.threads < 32 || plan.threads > 1024 || plan.threads % 32 != 0) {
    return "threads";
  }
  if (plan.shared_bytes > limits.shared_bytes) {
    return "more shared memory than there is";
  }
  switch (plan.tier) {
    case warpfuse::Tier::warp:
      return !std::has_single_bit(unsigned(plan.lanes)) || plan.lanes > 32 ? "lanes"
             : plan.threads > 256 || plan.blocks != 1                      ? "size"
             : int64_t{plan.lanes} * plan.lane_packs < shape.packs         ? "the row does not fit"
             : plan.lanes < shape.edges                                    ? "an edge has no lane"
                                                                           : "";
    case warpfuse::Tier::chunk: {
      const int64_t columns = (shape.packs + 1) * 16 / shape.kind.element_bytes - 1;
      return shape.edges == 0                             ? "rows that are aligned"
             : !std::has_single_bit(unsigned(plan.lanes)) ? "lanes"
             : plan.lanes > 32 || int64_t{plan.lanes} * plan.lane_packs < columns
                 ? "the row does not fit"
             : plan.threads > 256 || plan.blocks != 1 ? "size"
                                                      : "";
    }
    case warpfuse::Tier::span:
      return !shape.span                                           ? "rows that are no spans"
             : plan.lanes != 32 && plan.lanes != plan.threads      ? "lanes"
             : plan.threads > 256 || plan.blocks != 1              ? "size"
             : int64_t{plan.lanes} * plan.lane_packs < shape.packs ? "the row does not fit"
                                                                   : "";
    case warpfuse::Tier::block:
    case warpfuse::Tier::cluster:
      if (plan.tier == warpfuse::Tier::block
              ? plan.blocks != 1
              : plan.blocks < 2 || plan.blocks > limits.cluster_blocks) {
        return "blocks";
      }
      if (plan.lane_packs > 0 && plan.lane_packs < slots) {
        return "the row does not fit";
      }
      return plan.ahead || plan.lane_packs == 0
                 ? (plan.shared_bytes < copied ? "no room for the row" : "")
             : plan.shared_bytes > 0 ? "shared memory for nothing"
                                     : "";
    case warpfuse::Tier::stream:
      if (plan.ahead) {
        return !limits.cooperative || shape.rows * plan.blocks > limits.multiprocessors
                   ? "more blocks than run at once"
               : plan.blocks < 2 || plan.threads > 512 ? "size"
               : plan.shared_bytes == 0 ||
                       plan.shared_bytes %
                               (plan.threads * static_cast<size_t>(shape.kind.pack_bytes())) !=
                           0
                   ? "room for parts of packs"
                   : "";
      }
      return plan.blocks < 1 || plan.threads > 512            ? "size"
             : plan.lane_packs != 0 || plan.shared_bytes != 0 ? "a place for nothing"
             : plan.blocks > 1 &&
                     shape.rows * plan.blocks * warpfuse::kSplitPartBytes > warpfuse::kSplitBytes
                 ? "more parts than allowed"
                 : "";
    default:
      return "tier";
  }
}

/// What is wrong with the plan of a shape; empty when all of the tiles have their place.
inline std::string fault(const warpfuse::ColumnPlan& plan, const warpfuse::ColumnShape& shape,
                         const warpfuse::RowLimits& limits) {
  const int64_t rows = int64_t{plan.width} * plan.vector;  // of a tile
  if (plan.threads < 32 || plan.threads > 512 || plan.threads % 32 != 0) {
    return "threads";
  }
  const bool shared = plan.lanes == 0;  // by the warps of a tile
  const int64_t most = plan.vector > 1 ? 128 / shape.element_bytes : 32;
  if (shared && (!std::has_single_bit(unsigned(plan.width)) || rows > most)) {
    return "width";
  }
  if (!shared && (!std::has_single_bit(unsigned(plan.lanes)) || plan.lanes > 32 ||
                  plan.width != plan.threads / 32 * plan.lanes || plan.blocks > 1 || plan.ahead)) {
    return "lanes";
  }
  const bool word = plan.vector == 2 && shape.element_bytes == 2 && shape.vector > 2;
  if (plan.vector != shape.vector && plan.vector != 1 && !word) {
    return "elements at once";
  }
  if (plan.tiles * rows < shape.outer * shape.inner) {
    return "rows without a tile";
  }
  if (!std::has_single_bit(unsigned(plan.blocks)) || plan.blocks > limits.cluster_blocks) {
    return "blocks";
  }
  if (plan.lane_packs == 0) {
    return plan.blocks == 1 ? "" : "blocks for what is read twice";
  }
  const size_t copied = plan.ahead ? size_t{16} * plan.threads * warpfuse::kColumnAheadPacks : 0;
  const int64_t depths =
      shared ? int64_t{plan.threads} / plan.width * plan.blocks : 32 / plan.lanes;
  return copied > limits.shared_bytes                ? "more shared memory than there is"
         : plan.ahead && plan.vector != shape.vector ? "elements cannot be copied ahead"
         : depths * plan.lane_packs < shape.columns  ? "the columns do not fit"
                                                     : "";
}
