#include "tune/candidates.h"

#include <fmt/format.h>

#include <bit>
#include <map>
#include <tuple>

namespace warpfuse::host::tune {
namespace {

// Packs of a row from which a cluster may be best for few rows, and for many; and reading it twice.
constexpr int64_t kClusterPacksOfFew = 512, kClusterPacksOfMany = 1024, kReadTwicePacks = 2048;
// Packs that registers hold over those of the rows: of few, of more, and by threads that are no
// power of two.
constexpr int64_t kLoosePacks = 256;
constexpr double kMaxShareOfFew = 4, kMaxShare = 2, kMaxShareOfOddThreads = 1.35;
// Packs of a row in shared memory per thread, where each row has its own block or cluster.
constexpr int64_t kMinSharedPacks = 4, kMaxSharedPacks = 24;
constexpr int64_t kLongColumns = 8192;  // from which reading them twice may be best

bool is_power_of_two(int number) { return std::has_single_bit(static_cast<unsigned>(number)); }

std::vector<RowShape> shapes_of(const RowClass& c) {
  std::vector<RowShape> shapes;
  const int64_t packs = c.longest();
  std::vector<int64_t> numbers{c.rows.above + 1'000'000};
  if (c.rows.up_to != kAny) {
    numbers = {c.rows.above + 1, c.rows.up_to};
  }
  for (const RowKind& kind : kinds_of(c)) {
    const bool span = kind.masked && !kind.tensor && kind.element_bytes < 8;
    for (const int64_t rows : numbers) {
      shapes.push_back({kind, packs, 0, rows, span, 0});
      shapes.push_back(odd_shape(kind, packs - 1, rows));
    }
  }
  return shapes;
}

// All that a line may name, of any tier.
std::set<int> lane_packs_of(Direction direction) {
  std::set<int> numbers{kColumnAheadPacks, column_elements(direction, 4),
                        column_elements(direction, 8), chunk_slots(direction)};
  for (int n = 0; n <= LanePacks::kMax; ++n) {
    numbers.insert(n);
  }
  return numbers;
}

// All runs that a table can have in lines for the function, since a kernel is compiled for them.
const std::vector<TuningEntry>& compiled(const RowClass& c) {
  static std::map<std::tuple<Function, Direction, int>, std::vector<TuningEntry>> known;
  std::vector<TuningEntry>& runs = known[{c.function, c.direction, c.element_bytes}];
  if (!runs.empty()) {
    return runs;
  }
  for (const Tier tier : {Tier::warp, Tier::chunk, Tier::span, Tier::block, Tier::cluster,
                          Tier::stream, Tier::column}) {
    for (const int threads :
         {64, 96, 128, 160, 192, 224, 256, 288, 320, 384, 448, 512, 640, 768, 1024}) {
      for (const int lane_packs : lane_packs_of(c.direction)) {
        for (const int blocks : {0, 1, 2, 4, 8, 16}) {
          for (const bool ahead : {false, true}) {
            const TuningEntry run{.direction = c.direction,
                                  .functions = suffix_of(c.function),
                                  .element_bytes = c.element_bytes,
                                  .packs = kAny,
                                  .rows = kAny,
                                  .tier = tier,
                                  .threads = threads,
                                  .lane_packs = lane_packs,
                                  .blocks = blocks,
                                  .ahead = ahead};
            if (refusal(run).empty()) {
              runs.push_back(run);
            }
          }
        }
      }
    }
  }
  return runs;
}

// Whether registers hold few packs more than the rows have.
bool fills(const TuningEntry& run, int64_t packs) {
  const auto held = static_cast<double>(int64_t{run.threads} * run.blocks * run.lane_packs);
  const double share = !is_power_of_two(run.threads) ? kMaxShareOfOddThreads
                       : packs <= kLoosePacks        ? kMaxShareOfFew
                                                     : kMaxShare;
  return run.threads == 64 || held <= share * static_cast<double>(packs);
}

// Threads, packs a lane and blocks that hold the rows, are not half empty, and read enough at once.
bool is_sensible(const TuningEntry& run, const RowClass& c, const RowLimits& limits) {
  const int64_t packs = c.longest();
  const int64_t threads = int64_t{run.threads} * run.blocks;
  const bool many = c.rows.up_to > int64_t{2} * limits.multiprocessors;
  switch (run.tier) {
    case Tier::warp:
      // Blocks of 128 threads that read one pack each end faster than a GPU starts others.
      return run.lane_packs > 0 && run.threads <= (run.lane_packs == 1 ? 256 : 128);
    case Tier::cluster: {
      const int least_packs = !many ? 1 : run.direction == Direction::forward ? 4 : 2;
      if (packs < (many ? kClusterPacksOfMany : kClusterPacksOfFew) || run.threads < 96 ||
          packs < int64_t{128} * run.blocks ||
          (run.lane_packs > 0 && run.lane_packs < least_packs)) {
        return false;
      }
      [[fallthrough]];
    }
    case Tier::block:
      if (run.lane_packs > 0) {
        return fills(run, packs) && (many || is_power_of_two(run.threads));
      }
      return is_power_of_two(run.threads) && run.threads >= 256 &&
             (run.ahead ? threads <= packs
                        : kMinSharedPacks * threads <= packs && packs <= kMaxSharedPacks * threads);
    case Tier::stream:
      return packs > kReadTwicePacks && is_power_of_two(run.threads) && run.threads >= 256 &&
             run.blocks == 0;
    case Tier::column: {
      const int64_t held = threads * run.lane_packs;
      if (!is_power_of_two(run.threads) || (run.lane_packs > 0 && held < packs)) {
        return false;
      }
      if (run.lane_packs == 0) {
        return run.threads >= 256 && packs >= kLongColumns;
      }
      if (!run.ahead && run.blocks == 1 &&
          packs <= int64_t{run.takes_packs() ? 8 : 2} * run.lane_packs) {
        return run.threads >= 64;  // a row in a warp
      }
      // Tiles of elements are 32 rows wide.
      return run.takes_packs() ? run.threads >= 256 && held <= 128 * packs
                               : held >= 32 * packs && held < 128 * packs;
    }
    default:
      return true;
  }
}

}  // namespace

std::string run_text(const TuningEntry& run) {
  return fmt::format("{} {} {} {} {}", to_string(run.tier), run.threads, run.lane_packs, run.blocks,
                     run.ahead ? 1 : 0);
}

std::string table_of(const TuningEntry& run, const Tuning& start) {
  Tuning table = start;
  std::erase_if(table.entries, [](const TuningEntry& entry) {
    return entry.packs != kAny || entry.rows != kAny || entry.ahead || entry.lane_packs != 0 ||
           entry.functions != TuningEntry::Functions::all;
  });
  table.entries.insert(table.entries.begin(), run);
  return table.to_string();
}

std::vector<TuningEntry> candidates_of(const RowClass& c, const RowLimits& limits) {
  const bool column = c.function == Function::columns;
  std::vector<TuningEntry> found;
  std::vector<std::vector<RowPlan>> plans;
  for (const TuningEntry& run : compiled(c)) {
    if ((run.tier == Tier::column) != column || !is_sensible(run, c, limits)) {
      continue;
    }
    if (column) {
      if (run.blocks <= limits.cluster_blocks) {
        found.push_back(run);
      }
      continue;
    }
    const Tuning alone{limits.shared_bytes, limits.cluster_blocks, {run}};
    std::vector<RowPlan> of_run;
    bool any = false;
    for (const RowShape& shape : shapes_of(c)) {
      RowPlan plan{};
      const bool taken = plan_line(shape, limits, alone, &plan) != nullptr;
      of_run.push_back(taken ? plan : RowPlan{});
      any = any || taken;
    }
    if (any && std::ranges::find(plans, of_run) == plans.end()) {
      found.push_back(run);
      plans.push_back(of_run);
    }
  }
  return found;
}

}  // namespace warpfuse::host::tune
