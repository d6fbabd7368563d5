#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace warpfuse {

/// Where a row lives while it is reduced.
enum class Tier {
  warp,    // in registers of 1..32 lanes, several rows a warp
  block,   // in registers or shared memory of one block
  stream,  // nowhere: it is read twice
  column,  // dimension not the last: a tile of neighbouring rows, read twice
};

const char* to_string(Tier tier);

/// Packs that a thread of the block tier keeps in registers: what its kernel is compiled for.
inline constexpr int kBlockLanePacks = 4;

/// The numbers that decide the tier. They are data, so that a test or a benchmark can set others.
/// A pack is 16 bytes of a row.
struct RowTuning {
  int warp_lane_packs = 8;      // packs a lane at most, 1, 2, 4 or 8; beyond, the block tier
  int warp_threads = 128;       // threads of a block in the warp tier; at most 256
  int block_min_threads = 128;  // rows in registers; at most 512, which leaves each 128 registers
  int block_max_threads = 512;
  int shared_threads = 1024;  // rows in shared memory
  int stream_threads = 1024;

  bool operator==(const RowTuning&) const = default;
};

/// What a launch of the row engine looks like.
struct RowPlan {
  Tier tier;
  int lanes;            // that share a row: 1..32 in the warp tier, the whole block elsewhere
  int lane_packs;       // packs in the registers of one lane; 0: the row is in shared memory
  int threads;          // of a block
  size_t shared_bytes;  // dynamic shared memory of a block

  bool operator==(const RowPlan&) const = default;
  std::string to_string() const;
};

/// The shape of a row as far as the plan depends on it.
struct RowShape {
  int64_t packs;        // 16-byte packs that the row touches, at its worst alignment
  size_t cached_bytes;  // of one pack, in the compute type, in shared memory
};

/// The plan for rows of this shape on a device whose blocks get at most `shared_limit` bytes.
RowPlan plan_rows(const RowShape& shape, size_t shared_limit, const RowTuning& tuning);

/// The plan of a tier by name; tier is one of warp, block and stream. Returns false where the tier
/// cannot take the shape.
bool plan_tier(Tier tier, const RowShape& shape, size_t shared_limit, const RowTuning& tuning,
               RowPlan* plan);

/// Packs that a row of `columns` elements touches, `pack` elements in each, when rows start at any
/// alignment (or all at a multiple of a pack).
int64_t packs_of_row(int64_t columns, int pack, bool aligned);

}  // namespace warpfuse
