#pragma once

#include "cached_attention_softmax/prompt_slots.cuh"
#include "hopper/mbarrier.cuh"

namespace warpfuse::cuda {

/// The barriers of a ring of stages, in shared memory. All warps fill a stage together, and all
/// read it, one or two tiles apart.
template <int kStages>
struct StageBarriers {
  Mbarrier full[kStages], empty[kStages];

  /// By one thread, followed by a barrier of the block.
  __device__ void init(int warps) {
    for (int stage = 0; stage < kStages; ++stage) {
      full[stage].init(warps);
      empty[stage].init(warps);
    }
  }
};

/// Tiles of keys and values of kTileSlots neighbouring slots, from the first slot that a block sees
/// to the last one, as they pass through a ring of stages in shared memory.
template <typename Products, int kWarps, int kStages>
class SlotTiles {
 public:
  using T = typename Products::T;
  static constexpr int kQueries = kWarps * kWarpQueries, kThreads = kWarps * 32;
  static constexpr int kTileBytes = kTileSlots * Products::kHeadDim * static_cast<int>(sizeof(T));
  static constexpr int kBytes = kStages * 2 * kTileBytes;
  using Barriers = StageBarriers<kStages>;
  using Slots = PromptSlots<kQueries, kWarps>;

  /// `stages` is the shared address of kBytes, `tokens` int[kStages * kTileSlots] in shared memory.
  __device__ SlotTiles(const CachedAttentionArguments& a, const Slots& slots, Barriers& barriers,
                       unsigned stages, int* tokens, const PromptBlock& block)
      : a_(a),
        slots_(slots),
        barriers_(barriers),
        stages_(stages),
        tokens_(tokens),
        batch_(block.batch),
        first_query_(block.first_query),
        chunk_(static_cast<int>(threadIdx.x) % kChunks),
        row_(static_cast<int>(threadIdx.x) / kChunks),
        offset_(Products::offset(row_, chunk_)),
        consecutive_(slots.consecutive),
        has_gaps_(slots.has_gaps),
        holds_(chunk_ * kPack<T> < static_cast<int>(a.head_dim)),
        first_slot_(slots.first_slot),
        first_token_(slots.first_token),
        new_slots_(slots.new_slots),
        begin_(slots.begin),
        end_(slots.end),
        first_written_(consecutive_ ? first_slot_ + first_query_ - first_token_ : 0),
        last_written_(!block.writes_cache ? 0
                      : consecutive_      ? first_written_ + kQueries
                                          : INT_MAX),
        key_(row_of<T>(a.key, block.batch, block.key_head, 0) + chunk_ * kPack<T>),
        value_(row_of<T>(a.value, block.batch, block.key_head, 0) + chunk_ * kPack<T>),
        keys_(row_of<T>(a.keys, block.batch, block.key_head, 0) + chunk_ * kPack<T>),
        values_(row_of<T>(a.values, block.batch, block.key_head, 0) + chunk_ * kPack<T>) {}

  __device__ int count() const { return (end_ - begin_ + kTileSlots - 1) / kTileSlots; }
  __device__ int first_slot(int tile) const { return begin_ + tile * kTileSlots; }
  __device__ unsigned keys(int tile) const { return stages_ + stage(tile) * (2 * kTileBytes); }
  __device__ unsigned values(int tile) const { return keys(tile) + kTileBytes; }

  /// Before the first tile.
  __device__ void start() const {
    load(0);
    if constexpr (kLead > 0) {
      hand_over(0);
      load(1);
    }
  }

  /// Waits for a tile, after it has started the copies of one behind it.
  __device__ void wait(int tile) const {
    hand_over(tile + kLead);
    load(tile + kLead + 1);
    barriers_.full[stage(tile)].wait(round(tile));
  }

  /// A tile has been read by this warp.
  __device__ void release(int tile) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      barriers_.empty[stage(tile)].arrive();
    }
  }

  /// Writes to the cache what in the tile is of this block's queries. By all threads.
  __device__ void write(int tile) const {
    if (!holds_ || first_slot(tile) + kTileSlots <= first_written_ ||
        first_slot(tile) >= last_written_) {
      return;
    }
#pragma unroll 1
    for (int i = 0; i < kRows; ++i) {
      const int row = row_ + i * kRowsAtOnce, token = token_of(tile, row) - first_query_;
      if (token >= 0 && token < kQueries) {
        const int64_t slot = first_slot(tile) + row;
        store_16_bytes(keys_ + slot * a_.keys.row_stride,
                       load_shared_16_bytes(keys(tile) + offset(i)));
        store_16_bytes(values_ + slot * a_.values.row_stride,
                       load_shared_16_bytes(values(tile) + offset(i)));
      }
    }
  }

 private:
  static constexpr int kLead = kStages > 2 ? 1 : 0;  // tiles that a warp may be ahead of others
  static constexpr int kChunks = Products::kHeadDim / kPack<T>;  // of 16 bytes, per row
  static constexpr int kRowsAtOnce = kThreads / kChunks;
  static constexpr int kRows = kTileSlots / kRowsAtOnce;  // of a thread
  static_assert(kStages == 2 || kStages == 4);
  static_assert(kRowsAtOnce % 8 == 0);  // the period of the swizzle
  static_assert(kTileSlots % kRowsAtOnce == 0);

  __device__ static unsigned stage(int tile) { return static_cast<unsigned>(tile) % kStages; }
  __device__ static unsigned round(int tile) { return static_cast<unsigned>(tile) / kStages % 2; }
  __device__ int offset(int i) const { return offset_ + i * kRowsAtOnce * Products::kRowBytes; }

  /// Once this warp's part of a tile has arrived, which is the last that it has begun.
  __device__ void hand_over(int tile) const {
    wait_for_copies<0>();
    __syncwarp();
    if (threadIdx.x % 32 == 0 && tile < count()) {
      barriers_.full[stage(tile)].arrive();
    }
  }

  /// Starts the copies of this thread's part of a tile, if there is such a tile.
  __device__ void load(int tile) const {
    if (tile >= count()) {
      return;
    }
    barriers_.empty[stage(tile)].wait(round(tile) ^ 1);
    const int first = first_slot(tile), from_new = first - first_slot_;
    const bool all_new = from_new >= 0 && from_new + kTileSlots <= new_slots_;
    const bool all_old = from_new + kTileSlots <= 0 || from_new >= new_slots_;
    if (consecutive_ && !has_gaps_ && (all_new || all_old)) {
      load_neighbours(tile, all_new);
    } else {
      load_any(tile);
    }
    commit_copies();
  }

  /// A tile whose rows are neighbours, all of them new or none.
  __device__ void load_neighbours(int tile, bool is_new) const {
    const int first = first_slot(tile);
    const int row = row_ + (is_new ? first - first_slot_ + first_token_ : first);
    const int64_t key_stride = is_new ? a_.key.row_stride : a_.keys.row_stride;
    const int64_t value_stride = is_new ? a_.value.row_stride : a_.values.row_stride;
    const T* key = (is_new ? key_ : keys_) + row * key_stride;
    const T* value = (is_new ? value_ : values_) + row * value_stride;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const bool wanted = holds_ && first + row_ + i * kRowsAtOnce < end_;
      copy_16_bytes_or_zeros(keys(tile) + offset(i), key, wanted);
      copy_16_bytes_or_zeros(values(tile) + offset(i), value, wanted);
      key += kRowsAtOnce * key_stride;
      value += kRowsAtOnce * value_stride;
    }
  }

  __device__ void load_any(int tile) const {
    if (!consecutive_) {
      find_tokens(tile);
    }
#pragma unroll 1
    for (int i = 0; i < kRows; ++i) {
      const int row = row_ + i * kRowsAtOnce, slot = first_slot(tile) + row;
      const int token = token_of(tile, row);
      const bool wanted = holds_ && slot < end_ && (!has_gaps_ || slots_.sees(slot));
      const T* const key =
          token >= 0 ? key_ + token * a_.key.row_stride : keys_ + slot * a_.keys.row_stride;
      const T* const value =
          token >= 0 ? value_ + token * a_.value.row_stride : values_ + slot * a_.values.row_stride;
      copy_16_bytes_or_zeros(keys(tile) + offset(i), key, wanted);
      copy_16_bytes_or_zeros(values(tile) + offset(i), value, wanted);
    }
  }

  /// The new token at a slot, or -1.
  __device__ int token_of(int tile, int row) const {
    if (!consecutive_) {
      return tokens_[stage(tile) * kTileSlots + row];
    }
    const int distance = first_slot(tile) + row - first_slot_;
    return distance >= 0 && distance < new_slots_ ? first_token_ + distance : -1;
  }

  /// Of several tokens at a slot the last one counts. By all threads of the block.
  __device__ void find_tokens(int tile) const {
    int* const tokens = tokens_ + stage(tile) * kTileSlots;
    sync_warps<kWarps>();
    for (int i = static_cast<int>(threadIdx.x); i < kTileSlots; i += kThreads) {
      tokens[i] = -1;
    }
    sync_warps<kWarps>();
    for (int token = static_cast<int>(threadIdx.x); token < a_.tokens; token += kThreads) {
      const int64_t row = load_position(a_.positions, batch_, token) - first_slot(tile);
      if (row >= 0 && row < kTileSlots && first_slot(tile) + row < a_.slots) {
        atomicMax(&tokens[row], token);
      }
    }
    sync_warps<kWarps>();
  }

  const CachedAttentionArguments& a_;
  const Slots& slots_;
  Barriers& barriers_;
  unsigned stages_;
  int* tokens_;
  int batch_, first_query_, chunk_, row_, offset_;
  bool consecutive_, has_gaps_;
  bool holds_;  // the chunk is one of the head's
  int first_slot_, first_token_, new_slots_, begin_, end_;
  int first_written_, last_written_;  // slots that this block may have to write
  const T *key_, *value_;
  T *keys_, *values_;
};

}  // namespace warpfuse::cuda
