#include <future>

#include "tune/merge.h"

namespace warpfuse::host::tune {
namespace {

constexpr int64_t kLongest = 1'000'000'000'000;  // packs that stand for `*`, products in range
constexpr RowLimits kStrongest{std::numeric_limits<size_t>::max(), 16, 132, true};
constexpr RowLimits kWeakest{0, 1, 1, false};

// Rows that lines can be told apart for: of a function, by default or by a tier's name.
struct Rows {
  RowKind kind;
  bool column;    // over a dimension that is not the last, of any kind
  int64_t edges;  // 0, or some
  bool span;
  std::optional<Tier> named;
  int64_t above, up_to;  // packs
  int64_t number;        // at most

  bool lie_in(const TuningEntry& line) const {
    return column == (line.tier == Tier::column) && (column || line.is_for(kind)) &&
           (named ? line.tier == *named
                  : std::min(line.packs, kLongest) >= up_to && line.rows >= number);
  }
};

bool runs_alike(TuningEntry a, const TuningEntry& b) {
  a.functions = b.functions;
  a.packs = b.packs;
  a.rows = b.rows;
  return a == b;
}

bool plans(const TuningEntry& entry, const Rows& rows, int64_t packs, int64_t edges,
           const RowLimits& limits, const Tuning& table) {
  const Tuning alone{table.shared_bytes, table.cluster_blocks, {entry}};
  RowPlan plan{};
  return plan_tier(entry.tier, {rows.kind, packs, edges, 1, rows.span}, limits, alone, &plan) &&
         (entry.tier != Tier::warp || plan.lane_packs > 0);
}

// What a line takes of rows is told by its shortest and its longest: a longer one needs no less.
bool takes_some(const TuningEntry& entry, const Rows& rows, const Tuning& table) {
  if (rows.column) {
    return entry.lane_packs == 0 ||
           int64_t{entry.threads} * entry.lane_packs * entry.blocks > rows.above;
  }
  if (entry.tier == Tier::stream && entry.ahead) {
    return true;  // by their number too
  }
  // In the tier warp the more edges a row has, the more lanes share it.
  const int64_t edges = entry.tier == Tier::warp ? 32 : rows.edges;
  return plans(entry, rows, rows.above + 1, edges, kStrongest, table);
}

bool takes_all(const TuningEntry& entry, const Rows& rows, const Tuning& table) {
  if (rows.column) {
    return !entry.takes_packs() && entry.blocks == 1 &&
           (entry.lane_packs == 0 || int64_t{entry.threads} * entry.lane_packs >= rows.up_to);
  }
  if (entry.tier == Tier::stream && entry.ahead) {
    return false;
  }
  // A lane has at most the entry's packs, unless 32 lanes have more.
  const int64_t full = entry.tier == Tier::warp ? int64_t{32} * entry.lane_packs : 0;
  return plans(entry, rows, std::max(full, rows.up_to), rows.edges, kWeakest, table);
}

// All rows that the lines, of one direction and size of elements, tell apart.
std::vector<Rows> rows_of(std::span<const TuningEntry> lines) {
  std::set<int64_t> packs{kLongest}, numbers{std::numeric_limits<int64_t>::max()};
  for (const TuningEntry& line : lines) {
    packs.insert(std::min(line.packs, kLongest));
    numbers.insert(line.rows);
  }
  std::vector<Rows> all;
  const auto add = [&](Rows rows) {
    for (const int64_t up_to : packs) {
      rows.up_to = up_to;
      for (const int64_t number : numbers) {
        rows.number = number;
        if (!rows.named || number == *numbers.begin()) {  // a name is for any number
          all.push_back(rows);
        }
      }
      rows.above = up_to;
    }
  };
  add({{}, true, 0, false, std::nullopt, 0, 0, 0});
  for (const RowKind& kind : row_kinds(lines.front().direction, lines.front().element_bytes)) {
    for (const int64_t edges : {0, 1}) {
      for (const bool span : {false, true}) {
        add({kind, false, edges, span, std::nullopt, 0, 0, 0});
        for (const Tier tier :
             {Tier::warp, Tier::chunk, Tier::span, Tier::block, Tier::cluster, Tier::stream}) {
          add({kind, false, edges, span, tier, 0, 0, 0});
        }
      }
    }
  }
  return all;
}

// Lines of one direction and size of elements, which become fewer.
class Compaction {
 public:
  Compaction(std::span<const TuningEntry> lines, const Tuning& table)
      : lines_(lines.begin(), lines.end()), rows_(rows_of(lines)) {
    for (const TuningEntry& line : lines_) {
      const auto known = std::ranges::find_if(
          runs_, [&](const TuningEntry& run) { return runs_alike(run, line); });
      run_of_.push_back(static_cast<size_t>(known - runs_.begin()));
      if (known == runs_.end()) {
        runs_.push_back(line);
        runs_.back().functions = TuningEntry::Functions::all;  // lie_in() looks at the line's
      }
    }
    for (const Rows& rows : rows_) {
      for (const TuningEntry& run : runs_) {
        const bool fits = rows.column == (run.tier == Tier::column) && takes_some(run, rows, table);
        takes_.push_back(!fits                         ? Takes::none
                         : takes_all(run, rows, table) ? Takes::all
                                                       : Takes::some);
      }
    }
    for (size_t i = 0; i < rows_.size(); ++i) {
      tried_.push_back(tried(i));
    }
  }

  std::vector<TuningEntry> run() {
    while (drop() || join()) {
    }
    return lines_;
  }

 private:
  enum class Takes : char { none, some, all };

  // The runs that rows try in turn, each once, to the first that takes every one of them.
  std::vector<size_t> tried(size_t rows) const {
    std::vector<size_t> runs;
    for (size_t i = 0; i < lines_.size(); ++i) {
      const size_t run = run_of_[i];
      const Takes takes = takes_[rows * runs_.size() + run];
      if (takes == Takes::none || !rows_[rows].lie_in(lines_[i])) {
        continue;
      }
      bench::add_once(runs, run);
      if (takes == Takes::all) {
        break;
      }
    }
    return runs;
  }

  // Line `i` becomes `wide`, and line `gone` goes, if all rows then try the same.
  bool change(size_t i, TuningEntry wide, size_t gone) {
    const TuningEntry before = lines_[i];
    const TuningEntry lost = lines_[gone];
    const size_t run = run_of_[gone];
    lines_[i] = wide;
    const auto at = static_cast<std::ptrdiff_t>(gone);
    lines_.erase(lines_.begin() + at);
    run_of_.erase(run_of_.begin() + at);
    for (size_t rows = 0; rows < rows_.size(); ++rows) {
      const bool concerned = rows_[rows].lie_in(lost) || rows_[rows].lie_in(wide);
      if (concerned && takes_[rows * runs_.size() + run] != Takes::none &&
          tried(rows) != tried_[rows]) {
        run_of_.insert(run_of_.begin() + at, run);
        lines_.insert(lines_.begin() + at, lost);
        lines_[i] = before;
        return false;
      }
    }
    return true;
  }

  bool drop() {
    const size_t before = lines_.size();
    for (size_t i = before; i-- > 0;) {
      change(i, lines_[i], i);
    }
    return lines_.size() < before;
  }

  // Two lines of the same run become one, in the place of either.
  bool join() {
    const size_t before = lines_.size();
    for (size_t i = 0; i < lines_.size(); ++i) {
      for (size_t j = lines_.size(); --j > i;) {
        if (run_of_[i] != run_of_[j]) {
          continue;
        }
        TuningEntry both = lines_[i];
        both.packs = std::max(both.packs, lines_[j].packs);
        both.rows = std::max(both.rows, lines_[j].rows);
        if (both.functions != lines_[j].functions) {
          both.functions = TuningEntry::Functions::all;
        }
        if (!change(i, both, j) && change(j, both, i)) {
          --i;
          break;
        }
      }
    }
    return lines_.size() < before;
  }

  std::vector<TuningEntry> lines_;
  std::vector<Rows> rows_;
  std::vector<TuningEntry> runs_;
  std::vector<size_t> run_of_;              // of each line
  std::vector<Takes> takes_;                // of each of the rows, each run
  std::vector<std::vector<size_t>> tried_;  // of each of the rows, at first
};

}  // namespace

Tuning compacted(const Tuning& table) {
  // In a thread for each direction and size of elements: the whole takes seconds.
  std::vector<std::future<std::vector<TuningEntry>>> parts;
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    for (const int bytes : {2, 4, 8}) {
      parts.push_back(std::async(std::launch::async, [&table, direction, bytes] {
        return Compaction(table.lines(direction, bytes), table).run();
      }));
    }
  }
  Tuning compact{table.shared_bytes, table.cluster_blocks, {}};
  for (auto& part : parts) {
    const std::vector<TuningEntry> left = part.get();
    compact.entries.insert(compact.entries.end(), left.begin(), left.end());
  }
  return compact;
}

}  // namespace warpfuse::host::tune
