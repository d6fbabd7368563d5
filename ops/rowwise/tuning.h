#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rowwise/kernel_set.h"

namespace warpfuse {

/// Where a row lives while it is reduced.
enum class Tier {
  warp,      // in registers of 1..32 lanes, several rows a warp
  chunk,     // the same, element by element; a warp copies neighbouring rows in one piece
  span,      // what is visible of it, in registers of a warp or a block
  block,     // in registers or shared memory of one block
  cluster,   // in registers or shared memory of 2..16 blocks
  stream,    // nowhere: it is read twice; or what has room of a few, in all multiprocessors
  column,    // dimension not the last: a tile of neighbouring rows
  naive,     // nowhere: a thread reads it three times
  elements,  // no row: element by element
  tile,      // in registers of the blocks that make it by a matrix product
};

const char* to_string(Tier tier);

/// Columns in the registers of a thread, in the tier column: packs of neighbouring rows, or
/// elements of one row (of two in half precision, where rows lie in pairs), as many as 128
/// registers hold.
inline constexpr int kColumnPacks = 8;
constexpr int column_elements(Direction direction, int element_bytes) {
  return direction == Direction::backward && element_bytes == 8 ? 16 : 32;
}

/// One line of the table: rows of at most `packs` packs of 16 bytes, where there are at most `rows`
/// of them, are run so. The first line is taken that fits the shape, the device and the function's
/// kernels (kernel_set.h). Lines with `functions` are for these alone, the others for all. Lines of
/// the tier span are for attention whose keys are hidden by position alone. Lines of the tier
/// column are for softmax over a dimension that is not the last, and `packs` are its columns, of
/// which a thread keeps kColumnPacks packs of neighbouring rows or column_elements() elements.
struct TuningEntry {
  enum class Functions {
    all,
    plain,          // softmax, log_softmax, and attention that hides no key, without dropout
    masked,         // attention without dropout
    no_tensor,      // without a mask tensor and dropout
    rules,          // attention whose keys are hidden by position alone, without dropout
    tensor,         // attention with a mask tensor, without dropout
    dropout,        // that draw random numbers, but for the next
    dropout_first,  // dropout_softmax's forward in half precision
  };

  Direction direction;
  Functions functions;
  int element_bytes;
  int64_t packs;
  int64_t rows;
  Tier tier;
  int threads;     // of a block
  int lane_packs;  // that a lane keeps in registers; 0: the row is in shared memory, or nowhere
  int blocks;      // that share a row; 0: as many as are of use, in the tier stream alone
  bool ahead;      // the blocks stay, and the next row is on its way while one is worked on; in the
                   // tier stream, all blocks run at once and keep what they can of a few rows

  /// In the tier column: reads packs of neighbouring rows, which not all tensors have.
  bool takes_packs() const { return ahead || lane_packs == kColumnPacks; }

  bool is_for(const RowKind& kind) const {
    switch (functions) {
      case Functions::plain:
        return kind.plain;
      case Functions::masked:
        return kind.masked && !kind.dropout;
      case Functions::no_tensor:
        return !kind.tensor && !kind.dropout;
      case Functions::rules:
        return kind.masked && !kind.tensor && !kind.dropout;
      case Functions::tensor:
        return kind.tensor && !kind.dropout;
      case Functions::dropout:
        return kind.dropout;
      case Functions::dropout_first:
        return !kind.plain && !kind.masked && !kind.dropout &&
               kind.direction == Direction::forward && kind.element_bytes == 2;
      default:
        return true;
    }
  }
  /// What a table's entries are sorted by.
  std::pair<Direction, int> sort_key() const { return {direction, element_bytes}; }
  bool operator==(const TuningEntry&) const = default;
};

/// The numbers that decide how a shape runs: data, which a test or a measurement can replace.
struct Tuning {
  size_t shared_bytes;               // that a block may use at most, were the device to allow more
  int cluster_blocks;                // likewise
  std::vector<TuningEntry> entries;  // sorted by direction and element bytes

  bool operator==(const Tuning&) const = default;

  /// The entries of one direction and size of elements, in the order of the table.
  std::span<const TuningEntry> lines(Direction direction, int element_bytes) const;

  /// One line per entry under a heading; parse_tuning() reads it.
  std::string to_string() const;
};

/// Parses the text of a table. Throws std::invalid_argument, whose message names the line, where a
/// line is not an entry, no kernel is compiled for what it asks, or some shape has no entry.
Tuning parse_tuning(const std::string& text);

/// Why no kernel can run a line of a table, or an empty string.
std::string refusal(const TuningEntry& entry);

/// A GPU as far as a table is chosen by it.
struct GpuModel {
  std::string name;
  int capability = 0;  // 90 for 9.0
  int multiprocessors = 0;

  bool operator==(const GpuModel&) const = default;
};

/// The first line of a table's text says for which GPU it was measured, "# gpu 9.0 132 NVIDIA
/// H200"; nothing where it does not.
std::optional<GpuModel> parse_gpu_line(const std::string& text);
std::string gpu_line(const GpuModel& gpu);

struct ShippedTable {
  GpuModel gpu;
  Tuning tuning;
};

/// The tables that the library comes with, the files of tables/.
const std::vector<ShippedTable>& shipped_tables();

/// The one for a GPU of this name, else of the nearest capability, and of these with the nearest
/// number of multiprocessors.
const ShippedTable& shipped_for(const std::optional<GpuModel>& gpu,
                                const std::vector<ShippedTable>& tables);

/// The one of a machine without a GPU.
Tuning default_tuning();

/// The table in use: the last that was set, else that of the file WARPFUSE_TUNING, which is read at
/// first use, else the shipped one for the current GPU. Atomic loads, no lock. A table lives as
/// long as the process, so a call under way keeps the one that it began with. Setting a table that
/// was in use before takes no memory.
const Tuning& tuning();
void set_tuning(Tuning tuning);
/// Back to the shipped tables.
void reset_tuning();
/// Which table is in use, in words: "shipped for NVIDIA H200", "file F", ...
std::string tuning_source();

// --- plans ------------------------------------------------------------------------------------

/// What a launch of the row engine looks like.
struct RowPlan {
  Tier tier;
  int lanes;            // that share a row, in the tiers warp and span; 32 elsewhere
  int lane_packs;       // packs in the registers of one lane; 0: none
  int threads;          // of a block
  int blocks;           // that share a row
  bool ahead;           // the blocks stay for many rows; in the tier stream, they all run at once
  size_t shared_bytes;  // dynamic shared memory of a block

  bool operator==(const RowPlan&) const = default;
  std::string to_string() const;
};

/// The shape of rows as far as the plan depends on it.
struct RowShape {
  RowKind kind;
  int64_t packs;  // 16-byte packs of a row at most
  int64_t edges;  // elements of a row at most that are in no pack
  int64_t rows;
  bool span = false;  // the tier span can take them: packs are aligned, a span of keys is visible
  int64_t shift = 0;  // packs at most from the start of a line of the cache to a row's first pack
  bool chunk = true;  // the tier chunk can take them: hidden keys have no score

  bool operator==(const RowShape&) const = default;
};

/// What the device and its kernels allow.
struct RowLimits {
  size_t shared_bytes;  // dynamic, of a block
  int cluster_blocks;   // 1: no clusters
  int multiprocessors;
  bool cooperative;  // all blocks of a kernel can be made to run at once

  bool operator==(const RowLimits&) const = default;
};

/// The device's limits, or a table's where those are lower.
RowLimits lower(const RowLimits& limits, const Tuning& tuning);

/// The plan for rows of this shape.
RowPlan plan_rows(const RowShape& shape, const RowLimits& limits, const Tuning& tuning);

/// The same by the table in use. Each thread remembers the plans of its latest shapes: the search
/// takes 100 to 300 ns of a call's time.
RowPlan current_plan(const RowShape& shape, const RowLimits& limits);

/// The line of the table that makes it, and the plan; null where there is none.
const TuningEntry* plan_line(const RowShape& shape, const RowLimits& limits, const Tuning& tuning,
                             RowPlan* plan);

/// The plan of one tier, by the first entry of that tier that can take the shape, whatever packs
/// and rows the entry is for. Returns false where there is none. The tier warp reads rows that do
/// not fit its registers twice, but for float64.
bool plan_tier(Tier tier, const RowShape& shape, const RowLimits& limits, const Tuning& tuning,
               RowPlan* plan);

/// Rows whose elements lie `inner` apart.
struct ColumnShape {
  Direction direction;
  int element_bytes;
  int64_t columns;
  int64_t outer, inner;
  int vector;  // elements of neighbouring rows that may be read at once
};

/// How tiles of neighbouring rows are run.
struct ColumnPlan {
  int threads;     // of a block
  int lane_packs;  // columns in the registers of a thread; 0: each element is read twice
  int blocks;      // that share a tile
  int vector;      // elements that a thread reads at once
  int width;       // threads side by side
  int lanes;       // of a warp, side by side, where the threads of a row are in one warp; else 0
  bool ahead;      // the blocks stay for many tiles
  int64_t tiles;

  bool operator==(const ColumnPlan&) const = default;
};

ColumnPlan plan_columns(const ColumnShape& shape, const RowLimits& limits, const Tuning& tuning);

/// Packs in a line of the L2 cache.
inline constexpr int kLinePacks = 128 / 16;

/// Packs that a lane reads at once in the tier stream.
inline constexpr int kStreamLanePacks = 4;

/// Elements of a row that a lane has at most in the tier chunk, by the names in a table: a backward
/// has two inputs.
inline constexpr int kChunkSlots = 40;
constexpr int chunk_slots(Direction direction) {
  return kChunkSlots / (direction == Direction::forward ? 1 : 2);
}

/// The same, as the tier's kernels are compiled. A mask tensor's elements take registers too; half
/// precision of a backward stays in pairs; rules alone leave room for rows of 777 floats.
constexpr int chunk_slots(const RowKind& kind) {
  const bool backward = kind.direction == Direction::backward;
  if (kind.tensor) {
    return backward ? 16 : 32;
  }
  const bool plain_backward = backward && !kind.dropout && (kind.plain || kind.masked);
  if (plain_backward && kind.element_bytes == 2) {
    return kChunkSlots;
  }
  return plain_backward && kind.masked ? 28 : chunk_slots(kind.direction);
}

/// What the tier chunk takes of rows with a gap behind each, as a slice of longer rows has them:
/// columns at most, which all of its forward kernels hold, and elements from a row to the next at
/// most, so that offsets in a chunk fit in 32 bits.
inline constexpr int64_t kMaxGapColumns = 1000, kMaxGapStride = 262'144;

/// Packs of a thread's columns, in its registers and as many in shared memory, where tiles are on
/// their way ahead: forward of so many columns, backward of half of them.
inline constexpr int kColumnAheadPacks = 16;

/// Static shared memory of such a block at most, beside what RowLimits leaves out: the partials of
/// 16 warps and 16 blocks (strided_tile.cuh).
inline constexpr size_t kColumnExchangeBytes = size_t{24} * 1024;

/// Bytes that the partial results of a row that is split over several blocks may take for all rows,
/// and at most those of one.
inline constexpr size_t kSplitBytes = size_t{64} * 1024;
inline constexpr size_t kSplitPartBytes = 24;

/// Static shared memory of a row kernel's block at most: what 32 warps and 16 blocks found, two of
/// each in turn (BlockGroup::total), and two mbarriers, up to a line of the cache.
inline constexpr size_t kStaticSharedBytes = size_t{2} * (32 + 16) * kSplitPartBytes + 128;

}  // namespace warpfuse
