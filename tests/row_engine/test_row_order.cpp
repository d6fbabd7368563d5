// The order in which a GPU works on attention's rows, reckoned on the CPU.

#include <rowwise/cuda/row_order.cuh>
#include <set>

#include "support/pch.h"

namespace {

using warpfuse::KeyRules;
using warpfuse::RowPlace;
using warpfuse::cuda::RowOrder;

/// Every step has a place inside the tensors, which the rules may read, and every row has one step.
template <typename Int>
void check(const KeyRules& rules, int64_t batch, int group) {
  const int64_t rows = batch * rules.heads * rules.queries;
  INFO(batch << " x " << rules.heads << " x " << rules.queries << ", " << group << " rows a block");
  const RowOrder order(rules, rows, group);
  std::set<int64_t> seen;
  int64_t outside = 0, without_row = 0, elsewhere = 0;
  for (int64_t step = 0; step < order.steps(); ++step) {
    int64_t index = 0;
    const RowPlace place = order.place<Int>(step, index);
    outside += place.batch < 0 || place.batch >= batch || place.head < 0 ||
               place.head >= rules.heads || place.query < 0 || place.query >= rules.queries;
    if (index < 0) {
      ++without_row;
      continue;
    }
    elsewhere += index != (place.batch * rules.heads + place.head) * rules.queries + place.query;
    seen.insert(index);
  }
  CHECK(outside == 0);
  CHECK(elsewhere == 0);
  CHECK(static_cast<int64_t>(seen.size()) == rows);
  CHECK(*seen.rbegin() == rows - 1);
  CHECK(order.steps() == rows + without_row);
  CHECK(without_row <= rows / 8);  // blocks of a few queries each would be most of the grid
}

}  // namespace

TEST_CASE("each row has a step, and each step a place in the tensors", "[order]") {
  const int64_t position = 0;
  for (const auto& [batch, heads] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {1, 3}, {3, 1}, {2, 5}, {7, 11}}) {
    for (const int64_t queries : {1, 2, 5, 7, 16, 33, 65}) {
      for (const int group : {1, 2, 4, 8, 32, 256}) {
        KeyRules rules;
        rules.heads = heads;
        rules.queries = queries;
        rules.keys = 7;
        check<int>(rules, batch, group);
        rules.causal = true;
        check<int>(rules, batch, group);
        check<int64_t>(rules, batch, group);
        rules.causal = false;
        rules.query_positions = {&position, true, 0, 0};
        check<int>(rules, batch, group);
      }
    }
  }
}
