#pragma once

#include "tune/row_class.h"

namespace warpfuse::host::tune {

// A row of the benchmark's presets, and the class of rows of its size alone.
struct PresetRow {
  RowClass c;
  bench::Case row;
};

// Whether all rows begin at a multiple of 16 bytes.
bool is_aligned(const bench::Case& c);

// Those that the table's lines are for: of the presets that docs/benchmarks has tables of, then of
// the others.
const std::array<std::vector<PresetRow>, 2>& preset_rows();

// A row that is measured for a class.
struct ProbeRow {
  bench::Case row;
  bool of_presets;
};

// Rows that stand for the class: its longest and its shortest, aligned and not, with the masks that
// have kernels of their own, and those of the presets.
std::vector<ProbeRow> probes_of(const RowClass& c, int multiprocessors);

}  // namespace warpfuse::host::tune
