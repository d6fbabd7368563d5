#pragma once

#include "tune/row_class.h"

namespace warpfuse::host::tune {

// A run that is faster for the rows of a class; of several, the first that takes a row.
struct Win {
  RowClass c;
  TuningEntry run;
};

// The table that runs rows of the wins' classes so, and all others as `start` does. A line is for
// all rows up to its packs and its number, so that the lines of `start` for shorter and fewer rows
// come before a win's, cut to its borders; lines that change nothing are left out.
Tuning with_wins(const Tuning& start, const std::vector<Win>& wins, const RowLimits& limits);

// The table without the lines that change nothing: every row has the same plan, on any GPU, by
// default and by the name of each tier.
Tuning compacted(const Tuning& table);

}  // namespace warpfuse::host::tune
