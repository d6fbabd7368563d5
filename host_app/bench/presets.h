#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/case.h"

namespace warpfuse::host::bench {

// Rows that share operators, dtypes, masks and directions.
struct Entry {
  std::vector<Operator> operators;
  std::vector<Shape> shapes;
  std::vector<Precision> dtypes;
  std::vector<Mask> masks;
  std::vector<Direction> directions;
};

struct Preset {
  std::string_view name;
  std::string_view summary;
  std::vector<Entry> entries;
};

// basic, table, cpu, sweep, logprob, dropout.
const std::vector<Preset>& presets();

}  // namespace warpfuse::host::bench
