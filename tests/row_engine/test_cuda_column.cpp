// Softmax over a dimension that is not the last: tiles of neighbouring rows, by 16 bytes where the
// tensors lie so, else by elements; shared by the blocks of a cluster where there are many columns,
// and read twice where there are more than registers hold.

#include <set>

#include "support/compare.h"
#include "support/devices.h"
#include "support/dropout_checks.h"
#include "support/inputs.h"
#include "support/pch.h"
#include "support/poison.h"
#include "support/reference.h"
#include "support/row_functions.h"
#include "support/softmax_checks.h"

namespace {

using warpfuse::ColumnPlan;
using warpfuse::Direction;
using warpfuse::Tier;
using warpfuse::TuningEntry;

struct Ran {
  int element_bytes;
  ColumnPlan plan;
};

/// Forward and backward over the middle dimension of [outer, columns, inner], tensors `offset`
/// elements off.
void check(at::IntArrayRef shape, at::ScalarType dtype, int64_t offset, const at::Device& device,
           std::vector<Ran>* ran = nullptr) {
  const at::Tensor x = random_at(offset, shape, dtype, device);
  const at::Tensor grad = random_at(offset, shape, dtype, device);
  for (const bool log : {false, true}) {
    INFO((log ? "log_softmax of " : "softmax of ")
         << describe(x) << " over dim 1, " << offset << " elements off");
    const Expected expected = expected_softmax(x, 1, log);
    const at::Tensor y = random_at(offset, shape, dtype, device).copy_(expected.values);
    const Poison poison;
    at::Tensor forward;
    at::Tensor backward;
    const auto launches = launches_during([&] {
      forward = log ? warpfuse::log_softmax(x, 1) : warpfuse::softmax(x, 1);
      backward = log ? log_softmax_backward(grad, y, 1) : softmax_backward(grad, y, 1);
    });
    CHECK(mismatch(forward, expected) == "");
    CHECK(mismatch(backward, expected_softmax_backward(grad, y, 1, log)) == "");
    REQUIRE(launches.size() == 2);
    for (const auto& [launch, plan] :
         {std::pair{launches[0], column_plan_of(Direction::forward, {x, forward})},
          std::pair{launches[1], column_plan_of(Direction::backward, {grad, y, backward})}}) {
      INFO(launch.dump());
      CHECK(is_launch_of(launch, plan));
      if (ran != nullptr) {
        ran->push_back({static_cast<int>(x.element_size()), plan});
      }
    }
  }
}

/// A table by which blocks that stay take all tiles that they can hold.
std::string ahead_tuning(const std::string& threads, int blocks) {
  std::string table;
  for (const int bytes : {2, 4, 8}) {
    table += c10::str("forward ", bytes, " * * column ", threads, "16 ", blocks, " 1\n");
    table += c10::str("backward ", bytes, " * * column ", threads, "8 ", blocks, " 1\n");
  }
  return table + library_tuning();
}

}  // namespace

WARPFUSE_GPU_TEST("inner sizes of all kinds", "[column][portable]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t inner : {2, 3, 5, 8, 16, 31, 32, 33, 64, 65, 129, 264}) {
      for (const int64_t outer : {1, 3}) {
        for (const int64_t columns : {1, 2, 7, 19, 33, 100, 257}) {
          check({outer, columns, inner}, dtype, 0, device);
          check({outer, columns, inner}, dtype, 1, device);
        }
      }
    }
  }
}

WARPFUSE_GPU_TEST("columns around every threshold of the tiles", "[column][portable]") {
  constexpr int64_t kMost = 70'000;
  for (const at::ScalarType dtype : kDtypes) {
    std::set<int64_t> columns;
    for (const TuningEntry& entry : warpfuse::parse_tuning(library_tuning()).entries) {
      const int64_t held = int64_t{entry.threads} * entry.lane_packs * entry.blocks;
      if (entry.tier == Tier::column &&
          entry.element_bytes == static_cast<int>(c10::elementSize(dtype))) {
        for (const int64_t n : {entry.packs, held, held / 2, held / 8, held / 16, held / 32}) {
          if (n > 1 && n < kMost) {
            columns.insert({n - 1, n, n + 1});
          }
        }
      }
    }
    for (const int64_t n : columns) {
      check({2, n, 16}, dtype, 0, device);
      check({1, n, 5}, dtype, 0, device);
      check({400, n < 100 ? n : 1, 5}, dtype, 0, device);  // rows of a tile are of many outer ones
    }
  }
}

WARPFUSE_GPU_TEST("each kernel of the tier column", "[column][portable]") {
  std::vector<Ran> ran;
  std::vector<int> sizes = {1};
  for (int blocks = 2; blocks <= row_limits().cluster_blocks; blocks *= 2) {
    sizes.push_back(blocks);
  }
  for (const at::ScalarType dtype : kDtypes) {
    for (const int blocks : sizes) {
      for (const std::string threads : {"128 ", "512 "}) {
        for (const int64_t slots : {0, 8, 16, 32}) {  // 16: elements of a backward in float64
          const bool ahead = slots == 0;
          const TuningInUse tuning(
              ahead ? ahead_tuning(threads, blocks)
                    : tuning_with(c10::str("column ", threads, slots, ' ', blocks, " 0")));
          const int64_t held =
              int64_t{threads == "128 " ? 128 : 512} * (ahead ? 8 : slots) * blocks;
          std::set<int64_t> columns = {held / 32 + 1, held / 8, held / 4 - 1, held / 2, held};
          if (ahead) {
            columns.insert(2 * held);  // that the forward holds
          } else if (blocks == 1) {
            // A row is in 1 to 32 lanes.
            columns.insert(
                {1, slots - 1, slots, 2 * slots, 4 * slots, 8 * slots, 16 * slots, 32 * slots - 1});
          }
          for (const int64_t n : columns) {
            check({2, n, 24}, dtype, 0, device, &ran);
            check({1, n, 5}, dtype, 0, device, &ran);
          }
        }
      }
    }
    const TuningInUse tuning(tuning_with("column 256 0 1 0"));
    for (const int64_t columns : {1, 7, 500, 20'001}) {
      check({2, columns, 24}, dtype, 0, device, &ran);
      check({1, columns, 5}, dtype, 1, device, &ran);
    }
  }
  for (const int blocks : sizes) {
    const auto some = [&](int element_bytes, int vector, int lane_packs, bool ahead) {
      return std::ranges::any_of(ran, [&](const Ran& run) {
        return run.element_bytes == element_bytes && run.plan.vector == vector &&
               run.plan.lane_packs == lane_packs && run.plan.blocks == blocks &&
               run.plan.ahead == ahead;
      });
    };
    for (const int bytes : {2, 4, 8}) {
      INFO(blocks << " blocks, " << bytes << " bytes per element");
      const int pack = 16 / bytes;
      CHECK((blocks > 1 || some(bytes, 1, 0, false)));
      CHECK(some(bytes, 1, 32, false));
      CHECK(some(bytes, pack, 8, false));
      CHECK(some(bytes, pack, 16, true));  // forward
      CHECK(some(bytes, pack, 8, true));   // backward
    }
    CHECK(some(2, 2, 32, false));
    CHECK(some(8, 1, 16, false));  // backward
  }
  std::set<int> widths, lanes;
  for (const Ran& run : ran) {
    if (run.plan.lanes > 0) {
      lanes.insert(run.plan.lanes);
    } else {
      widths.insert(run.plan.width);
    }
  }
  CHECK(widths == std::set<int>{1, 2, 4, 8, 16, 32});
  CHECK(lanes == std::set<int>{1, 2, 4, 8, 16, 32});
}

WARPFUSE_GPU_TEST("softmax_dropout rounds once in each kernel", "[column][dropout][portable]") {
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    for (const std::string& table :
         {library_tuning(), tuning_with("column 256 8 1 0"), tuning_with("column 256 32 1 0"),
          tuning_with("column 256 0 1 0"), ahead_tuning("256 ", 1)}) {
      const TuningInUse tuning(table);
      check_rounded_once({3, 500, 64}, 1, dtype, device);
      check_rounded_once({3, 500, 5}, 1, dtype, device);
      check_rounded_once({30, 19, 65}, 1, dtype, device);
      check_rounded_once({40, 1000, 64}, 1, dtype, device);
    }
  }
}

WARPFUSE_GPU_TEST("blocks and clusters that stay for many tiles", "[column][portable]") {
  for (const int blocks : {1, 4}) {
    if (blocks > row_limits().cluster_blocks) {
      continue;
    }
    const TuningInUse tuning(ahead_tuning("256 ", blocks));
    for (const at::ScalarType dtype : kDtypes) {
      const int64_t columns = 2048 * blocks - 5;  // backward one thread wide, forward two
      const at::Tensor x = random_at(0, {300 / blocks, columns, 64}, dtype, device);
      const at::Tensor grad = random_at(0, x.sizes(), dtype, device);
      for (const bool log : {false, true}) {
        const Expected expected = expected_softmax(x, 1, log);
        const at::Tensor y = expected.values.to(dtype);
        const ColumnPlan forward = column_plan_of(Direction::forward, {x});
        const ColumnPlan backward = column_plan_of(Direction::backward, {grad, y});
        REQUIRE(forward.ahead);
        REQUIRE(backward.ahead);
        const Poison poison;
        at::Tensor output;
        at::Tensor grad_input;
        const auto launches = launches_during([&] {
          output = log ? warpfuse::log_softmax(x, 1) : warpfuse::softmax(x, 1);
          grad_input = log ? log_softmax_backward(grad, y, 1) : softmax_backward(grad, y, 1);
        });
        REQUIRE(launches.size() == 2);
        CHECK(is_launch_of(launches[0], forward));
        CHECK(is_launch_of(launches[1], backward));
        // Every block takes a second tile, and some a third.
        CHECK(2 * launches[0]["grid"].get<int64_t>() < forward.tiles * forward.blocks);
        CHECK(2 * launches[1]["grid"].get<int64_t>() < backward.tiles * backward.blocks);
        CHECK(mismatch(output, expected) == "");
        CHECK(mismatch(grad_input, expected_softmax_backward(grad, y, 1, log)) == "");
      }
    }
  }
}

WARPFUSE_GPU_TEST("rows and parts of rows of -infinity, infinity and NaN", "[column][portable]") {
  const auto check_extremes = [&](int64_t columns, int64_t inner, at::ScalarType dtype) {
    const at::Tensor x = random_at(0, {2, columns, inner}, dtype, device);
    x.select(2, 1).fill_(-kInf);                            // a row
    x.select(2, 2).narrow(1, 1, columns - 1).fill_(-kInf);  // all but its first element
    x.select(2, 3).narrow(1, 0, columns - 1).fill_(-kInf);  // all but its last
    x.select(2, 4).narrow(1, columns / 2, 1).fill_(kInf);
    x.select(2, 5).narrow(1, columns / 2, 1).fill_(kNaN);
    x.select(2, 6).narrow(1, columns / 3, columns / 3).fill_(-kInf);
    x.select(2, 7).fill_(kNaN);
    for (const SoftmaxOperator& op : kSoftmaxOperators) {
      const at::Tensor output = op(x, 1);
      for (int64_t row = 0; row < inner; ++row) {
        INFO(op.name << ", " << toString(dtype) << ", row " << row << " of " << inner << ", "
                     << columns << " columns");
        CHECK(mismatch(output.select(2, row), op.expected(x.select(2, row), 1)) == "");
      }
    }
    return column_plan_of(Direction::forward, {x});
  };
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t inner : {16, 10, 9}) {  // packs, words, elements
      CHECK(check_extremes(9, inner, dtype).lanes > 0);
      CHECK(check_extremes(50, inner, dtype).lanes > 0);
      CHECK(check_extremes(40'000, inner, dtype).lanes == 0);
    }
    for (const int blocks : {1, 2}) {
      if (blocks <= row_limits().cluster_blocks) {
        const TuningInUse tuning(ahead_tuning("128 ", blocks));
        CHECK(check_extremes(int64_t{1000} * blocks, 16, dtype).ahead);
      }
    }
  }
}

WARPFUSE_GPU_TEST("tensors that are aligned differently", "[column][portable]") {
  for (const at::ScalarType dtype : kDtypes) {
    const std::vector<int64_t> shape = {3, 100, 32};
    for (const auto& [of_grad, of_output] :
         std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {1, 0}, {1, 1}, {1, 3}}) {
      const at::Tensor x = random_at(of_output, shape, dtype, device);
      const at::Tensor grad = random_at(of_grad, shape, dtype, device);
      CHECK(mismatch(warpfuse::softmax(x, 1), expected_softmax(x, 1)) == "");
      x.copy_(at::softmax(x, 1));
      CHECK(mismatch(softmax_backward(grad, x, 1), expected_softmax_backward(grad, x, 1)) == "");
    }
  }
}

WARPFUSE_GPU_TEST("planted values in a tile stay in their row", "[column][portable]") {
  for (const int64_t inner : {16, 5}) {
    for (const int64_t columns : {100, 3000, 50'000}) {
      const at::Tensor x = random_at(0, {1, columns, inner}, at::kHalf, device);
      for (const SoftmaxOperator& op : kSoftmaxOperators) {
        check_planted(op, x[0].t(), {0, columns / 2, columns - 1}, [&] { return op(x, 1)[0].t(); });
      }
    }
  }
}
