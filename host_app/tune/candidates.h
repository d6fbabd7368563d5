#pragma once

#include "tune/row_class.h"

namespace warpfuse::host::tune {

// The runs that a line for the class's function can have and that can hold its rows, each once, as
// lines for any packs and rows. Left out is what leaves half of its threads idle.
std::vector<TuningEntry> candidates_of(const RowClass& c, const RowLimits& limits);

// "warp 64 4 1 0", as in a line.
std::string run_text(const TuningEntry& run);

// A table of the run and what every table ends with.
std::string table_of(const TuningEntry& run, const Tuning& start);

}  // namespace warpfuse::host::tune
