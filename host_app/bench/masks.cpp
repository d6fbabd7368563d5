#include "bench/masks.h"

#include <algorithm>
#include <random>

namespace warpfuse::host::bench {

Scores scores_of(const Shape& shape) {
  const std::vector<int64_t>& sizes = shape.sizes;
  const size_t rank = sizes.size();
  return {.batch = rank > 2 ? sizes[0] : 1,
          .heads = rank > 3 ? sizes[1] : 1,
          .queries = sizes[rank - 2],
          .keys = sizes[rank - 1]};
}

std::vector<int64_t> key_lengths_of(const Shape& shape) {
  const Scores scores = scores_of(shape);
  // The sequence is fixed by the standard (a distribution's is not), and is to be the same always.
  std::mt19937_64 engine(20);  // NOLINT(bugprone-random-generator-seed)
  std::vector<int64_t> lengths(static_cast<size_t>(scores.batch));
  for (int64_t& length : lengths) {
    length = 1 + static_cast<int64_t>(engine() % static_cast<uint64_t>(scores.keys));
  }
  return lengths;
}

std::vector<int64_t> query_positions_of(const Shape& shape) {
  const Scores scores = scores_of(shape);
  std::vector<int64_t> positions;
  positions.reserve(static_cast<size_t>(scores.queries));
  for (int64_t query = 0; query < scores.queries; ++query) {
    positions.push_back(std::max<int64_t>(scores.keys - scores.queries + query, 0));
  }
  return positions;
}

}  // namespace warpfuse::host::bench
