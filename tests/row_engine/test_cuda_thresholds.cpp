// Rows around every threshold of the table in use, and tensors that lie anywhere to 16-byte
// boundaries.

#include <set>

#include "support/compare.h"
#include "support/devices.h"
#include "support/errors.h"
#include "support/inputs.h"
#include "support/pch.h"
#include "support/poison.h"
#include "support/reference.h"
#include "support/row_functions.h"
#include "support/tuning_shapes.h"

namespace {

using warpfuse::Direction;
using warpfuse::RowPlan;
using warpfuse::TuningEntry;

constexpr int64_t kMostElements = int64_t{1} << 24;

/// A number of rows of so many columns.
using Rows = std::pair<int64_t, int64_t>;

/// On both sides of each threshold of a dtype.
std::set<Rows> around_thresholds(Direction direction, at::ScalarType dtype) {
  const int bytes = static_cast<int>(c10::elementSize(dtype));
  const int64_t pack = 16 / bytes;
  std::set<Rows> result;
  for (const TuningEntry& entry : warpfuse::parse_tuning(library_tuning()).entries) {
    if (entry.direction != direction || entry.element_bytes != bytes ||
        entry.tier == warpfuse::Tier::column) {
      continue;
    }
    std::vector<int64_t> rows = {3};
    if (entry.rows != kAny) {
      rows = {entry.rows, entry.rows + 1};
    }
    const int64_t packs = entry.packs == kAny ? 1000 : entry.packs;
    for (const int64_t n : rows) {
      for (const int64_t columns : {packs * pack - 1, packs * pack, packs * pack + 1,
                                    (packs + 1) * pack - 1, (packs + 1) * pack}) {
        if (n * columns <= kMostElements) {
          result.insert({n, columns});
        }
      }
    }
  }
  return result;
}

}  // namespace

WARPFUSE_GPU_TEST("softmax around every threshold: by default and by each name",
                  "[thresholds][portable]") {
  for (const at::ScalarType dtype : kDtypes) {
    std::set<std::string> ran;
    for (const auto& [rows, columns] : around_thresholds(Direction::forward, dtype)) {
      for (const int64_t offset : {0, 1}) {
        const at::Tensor x = random_at(offset, {rows, columns}, dtype, device);
        for (const SoftmaxOperator& op : kSoftmaxOperators) {
          INFO(op.name << " of " << describe(x) << ", " << offset << " elements off");
          const Expected expected = expected_softmax(x, -1, op.log);
          const auto check = [&](const std::string& name, const RowPlan& plan, const auto& call) {
            INFO(name << ": " << plan.to_string());
            at::Tensor output;
            const CounterDelta moved(c10::str("tier.", warpfuse::to_string(plan.tier)));
            {
              const Poison poison;
              output = call();
            }
            CHECK(moved() == launches_of(plan));
            CHECK(mismatch(output, expected) == "");
            ran.insert(warpfuse::to_string(plan.tier));
          };
          check("default", plan_of(Direction::forward, x), [&] { return op(x, -1); });
          for (const std::string name : {"warp", "block", "cluster", "stream"}) {
            const auto call = [&] { return softmax_algorithm(x, -1, name, op.log); };
            if (const auto plan = plan_by_name(name, x)) {
              check(name, *plan, call);
            } else {
              CHECK(error_of(call).rfind("Error: warpfuse::_softmax_algorithm: algorithm: ", 0) ==
                    0);
            }
          }
        }
      }
    }
    std::set<std::string> expected = {"warp", "block", "stream"};
    if (row_limits().cluster_blocks > 1) {
      expected.insert("cluster");
    }
    ran.erase("chunk");  // test_cuda_chunk.cpp
    CHECK(ran == expected);
  }
}

WARPFUSE_GPU_TEST("the naive algorithm agrees with the others", "[thresholds][portable]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t columns : {1, 7, 130, 1025, 4097}) {
      const at::Tensor x = random_at(1, {50, columns}, dtype, device);
      for (const bool log : {false, true}) {
        const at::Tensor naive = softmax_algorithm(x, -1, "naive", log);
        CHECK(mismatch(naive, expected_softmax(x, -1, log)) == "");
        for (const std::string& name : algorithms_on(device)) {
          if (name == "naive" || plan_by_name(name, x)) {
            INFO(name << " of " << describe(x));
            CHECK(aten_mismatch(softmax_algorithm(x, -1, name, log), naive, log ? 8e-6 : 0.0) ==
                  "");
          }
        }
      }
    }
  }
}

WARPFUSE_GPU_TEST("backward passes around every threshold", "[thresholds][portable]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const auto& [rows, columns] : around_thresholds(Direction::backward, dtype)) {
      for (const int64_t offset : {0, 1}) {
        const at::Tensor x = random_at(0, {rows, columns}, dtype, device);
        const at::Tensor grad = random_at(offset, {rows, columns}, dtype, device);
        for (const bool log : {false, true}) {
          const at::Tensor y = random_at(offset, {rows, columns}, dtype, device);
          y.copy_(expected_softmax(x, -1, log).values);
          const RowPlan plan = plan_of(Direction::backward, y);
          INFO("backward of " << (log ? "log_softmax " : "softmax ") << describe(y) << ", "
                              << offset << " elements off: " << plan.to_string());
          const CounterDelta moved(c10::str("tier.", warpfuse::to_string(plan.tier)));
          const Poison poison;
          const at::Tensor output =
              log ? log_softmax_backward(grad, y, -1) : softmax_backward(grad, y, -1);
          CHECK(moved() == launches_of(plan));
          CHECK(mismatch(output, expected_softmax_backward(grad, y, -1, log)) == "");
        }
      }
    }
  }
}

WARPFUSE_GPU_TEST("masked rows around every threshold", "[thresholds][portable]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const auto& [rows, columns] : around_thresholds(Direction::forward, dtype)) {
      for (const RowFunction& function :
           row_functions(1, rows, columns, dtype, device, {.input = columns % 2})) {
        check_row_function(function, plan_of(function));
      }
    }
  }
}

WARPFUSE_GPU_TEST("inputs, gradients and masks that are aligned differently, in every tier",
                  "[thresholds][portable]") {
  for (const std::string& run : runs_of_all_tiers()) {
    const TuningInUse tuning(tuning_with(run));
    for (const at::ScalarType dtype : kDtypes) {
      for (const Offsets& offsets :
           std::vector<Offsets>{{0, 1}, {1, 0}, {1, 1}, {1, 2}, {3, 0}, {7, 5}}) {
        for (const int64_t keys : {1, 29, 64, 517}) {
          for (const RowFunction& function : row_functions(2, 3, keys, dtype, device, offsets)) {
            INFO(run << ", " << offsets.input << " and " << offsets.second << " elements off");
            check_row_function(function, plan_of(function));
          }
        }
      }
    }
  }
}
