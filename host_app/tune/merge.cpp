#include "tune/merge.h"

namespace warpfuse::host::tune {
namespace {

using Lines = std::vector<TuningEntry>;

// Rows of one range of packs and one of numbers, and the lines that they follow.
struct Cell {
  Range packs, rows;
  Lines lines;
};

bool overlaps(int64_t up_to, const Range& range) { return up_to > range.above; }

// Numbers of a range: its ends, where lines end, and some between.
std::vector<int64_t> samples_of(const Range& range, const Lines& lines,
                                int64_t TuningEntry::* border) {
  const int64_t last = range.up_to == kAny ? 2 * range.above + 1'000'000 : range.up_to;
  std::set<int64_t> samples{last};
  for (int64_t step = 0; range.above + 1 + step < last; step = 2 * step + 1) {
    samples.insert(range.above + 1 + step);
  }
  for (const TuningEntry& line : lines) {
    if (line.*border < last) {  // above the range's start, as each of its lines is
      samples.insert({line.*border, line.*border + 1});
    }
  }
  return {samples.begin(), samples.end()};
}

// The lines that some row of the cell follows, on a GPU with these limits.
Lines reached(const Cell& cell, const Tuning& table, const RowLimits& limits) {
  const Tuning own{table.shared_bytes, table.cluster_blocks, cell.lines};
  std::vector<bool> used(cell.lines.size());
  const TuningEntry& first = cell.lines.front();
  const auto follow = [&](const RowShape& shape) {
    RowPlan plan{};
    if (const TuningEntry* line = plan_line(shape, limits, own, &plan)) {
      used[static_cast<size_t>(line - own.entries.data())] = true;
    }
  };
  const std::vector<int64_t> lengths = samples_of(cell.packs, cell.lines, &TuningEntry::packs);
  const std::vector<int64_t> numbers = samples_of(cell.rows, cell.lines, &TuningEntry::rows);
  for (const RowKind& kind : row_kinds(first.direction, first.element_bytes)) {
    for (const int64_t packs : lengths) {
      for (const int64_t rows : numbers) {
        follow({kind, packs, 0, rows, false, 0});
        follow(odd_shape(kind, packs, rows));
        follow({kind, packs, 0, rows, kind.masked && !kind.dropout && kind.element_bytes < 8, 0});
      }
    }
  }
  Lines kept;
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) {
      kept.push_back(cell.lines[i]);
    }
  }
  return kept;
}

Cell make_cell(const Lines& start, const std::vector<Win>& wins, const Range& packs,
               const Range& rows) {
  Cell cell{packs, rows, {}};
  for (const Win& win : wins) {
    if (packs.within(win.c.packs) && rows.within(win.c.rows)) {
      TuningEntry line = win.run;
      line.packs = packs.up_to;
      line.rows = rows.up_to;
      cell.lines.push_back(line);
    }
  }
  for (TuningEntry line : start) {
    if (overlaps(line.packs, packs) && overlaps(line.rows, rows)) {
      line.packs = std::min(line.packs, packs.up_to);
      line.rows = std::min(line.rows, rows.up_to);
      cell.lines.push_back(line);
    }
  }
  return cell;
}

// The lines of one direction and size of elements, of the tier column alone or of the others.
Lines merged(const Lines& start, const std::vector<Win>& wins, bool column, const Tuning& table,
             const RowLimits& limits) {
  std::set<int64_t> borders;
  int64_t last = 0;  // packs of the last win
  for (const Win& win : wins) {
    borders.insert({win.c.packs.above, win.c.packs.up_to});
    last = std::max(last, win.c.packs.up_to);
  }
  Lines lines;
  for (const Range& packs : ranges_of(borders)) {
    if (packs.above >= last) {
      break;  // the lines of `start` follow
    }
    std::set<int64_t> of_slab;
    for (const Win& win : wins) {
      if (packs.within(win.c.packs)) {
        of_slab.insert({win.c.rows.above, win.c.rows.up_to});
      }
    }
    for (const Range& rows : ranges_of(of_slab)) {
      Cell cell = make_cell(start, wins, packs, rows);
      if (!column) {
        cell.lines = reached(cell, table, limits);
      }
      lines.insert(lines.end(), cell.lines.begin(), cell.lines.end());
    }
  }
  lines.insert(lines.end(), start.begin(), start.end());
  return lines;
}

}  // namespace

Tuning with_wins(const Tuning& start, const std::vector<Win>& wins, const RowLimits& limits) {
  Tuning table{start.shared_bytes, start.cluster_blocks, {}};
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    for (const int bytes : {2, 4, 8}) {
      for (const bool column : {false, true}) {
        Lines lines;
        for (const TuningEntry& line : start.lines(direction, bytes)) {
          if ((line.tier == Tier::column) == column) {
            lines.push_back(line);
          }
        }
        std::vector<Win> own;
        std::ranges::copy_if(wins, std::back_inserter(own), [&](const Win& win) {
          return win.c.direction == direction && win.c.element_bytes == bytes &&
                 (win.c.function == Function::columns) == column;
        });
        const Lines all = merged(lines, own, column, start, limits);
        table.entries.insert(table.entries.end(), all.begin(), all.end());
      }
    }
  }
  return compacted(table);
}

}  // namespace warpfuse::host::tune
