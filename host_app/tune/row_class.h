#pragma once

#include <rowwise/tuning.h>

#include <limits>
#include <set>

#include "bench/benchmark.h"

namespace warpfuse::host::tune {

inline constexpr int64_t kAny = std::numeric_limits<int64_t>::max();  // `*` in a table

// Functions that lines of their own can be for: attention whose keys are hidden by position, and
// by a mask tensor; dropout, but for dropout_softmax's forward in half precision; and this.
enum class Function { softmax, attention, masks, dropout, dropout_first, columns };
inline constexpr bench::Names<Function, 6> kFunctionNames{
    {{Function::softmax, "softmax"},
     {Function::attention, "attention"},
     {Function::masks, "masks"},
     {Function::dropout, "dropout"},
     {Function::dropout_first, "dropout_first"},
     {Function::columns, "columns"}}};

// Numbers above one limit, up to the other.
struct Range {
  int64_t above, up_to;

  bool operator==(const Range&) const = default;
  bool within(const Range& outer) const { return above >= outer.above && up_to <= outer.up_to; }
  std::string text() const;  // "(512, 1024]"
};

// The numbers above 0 in parts, up to each border and above the last.
std::vector<Range> ranges_of(std::set<int64_t> borders);

// Rows that a line of the table can be for: of a function, by their length in packs (tier column:
// in elements) and their number.
struct RowClass {
  Function function;
  Direction direction;
  int element_bytes;
  Range packs, rows;

  bool operator==(const RowClass&) const = default;
  int64_t longest() const;   // packs of a row that stands for it
  std::string text() const;  // "softmax forward 2 bytes, packs (512, 1024], rows (1056, *]"
};

// Whether the class has all rows of the other.
bool covers(const RowClass& c, const RowClass& row);

// The kinds of row functions that the function's lines are for, and the suffix of these lines.
std::vector<RowKind> kinds_of(const RowClass& c);
TuningEntry::Functions suffix_of(Function function);

// The shape of rows that begin anywhere, with as many elements in no pack as there can be.
RowShape odd_shape(const RowKind& kind, int64_t packs, int64_t rows);

// The classes that `start` and a grid of lengths and numbers divide rows into, those first that
// matter most: of rows in the benchmark's tables, then in its other presets, then the rest; of each
// many rows before few, softmax before others; double precision last. Classes of so
// few bytes that a launch takes all of the time are left out, those whose fewest rows are over a
// gigabyte, and those of double precision that have the kernels of softmax's, or few rows.
std::vector<RowClass> classes_of(const Tuning& start, const RowLimits& limits,
                                 const std::vector<Function>& functions);

// The shorter and the longer rows of the class; none where it is not worth it.
std::vector<RowClass> halves_of(const RowClass& c);

}  // namespace warpfuse::host::tune
