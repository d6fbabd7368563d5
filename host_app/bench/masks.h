#pragma once

#include <cstdint>
#include <vector>

#include "bench/case.h"

namespace warpfuse::host::bench {

// The scores of a scaled_masked_softmax as [batch, heads, queries, keys].
struct Scores {
  int64_t batch, heads, queries, keys;
};
Scores scores_of(const Shape& shape);

// Mask::padding: one length for each batch entry, uniform in 1..keys. The same on every machine and
// in every run, so that rows of different files count the same bytes.
std::vector<int64_t> key_lengths_of(const Shape& shape);

// Mask::positions: those of the last queries of a sequence, keys - queries + i; the same for each
// batch entry. With one query that is a step of decoding that sees every key.
std::vector<int64_t> query_positions_of(const Shape& shape);

}  // namespace warpfuse::host::bench
