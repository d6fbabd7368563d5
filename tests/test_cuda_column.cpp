// Softmax over a dimension that is not the last: tiles of neighbouring rows, by 16 bytes where the
// tensors lie so, else by elements; shared by the blocks of a cluster where there are many columns,
// and read twice where there are more than registers hold.

#include <set>

#include "support/compare.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/pch.h"
#include "support/poison.h"
#include "support/row_functions.h"
#include "support/tensor_reference.h"

namespace {

/// The kernels that ran: blocks that share a tile, 0 where it was read twice.
using Blocks = std::set<int>;

/// Forward and backward over the middle dimension of [outer, columns, inner], tensors `offset`
/// elements off.
void check(at::IntArrayRef shape, at::ScalarType dtype, int64_t offset, const at::Device& device,
           Blocks* seen = nullptr) {
  const at::Tensor x = random_at(offset, shape, dtype, device);
  const at::Tensor grad = random_at(offset, shape, dtype, device);
  for (const bool log : {false, true}) {
    INFO((log ? "log_softmax of " : "softmax of ")
         << describe(x) << " over dim 1, " << offset << " elements off");
    const Expected expected = tensor_softmax(x, 1, log);
    const at::Tensor y = random_at(offset, shape, dtype, device).copy_(expected.values);
    const Poison poison;
    at::Tensor forward;
    at::Tensor backward;
    const auto launches = launches_during([&] {
      forward = log ? warpfuse::log_softmax(x, 1) : warpfuse::softmax(x, 1);
      backward = log ? log_softmax_backward(grad, y, 1) : softmax_backward(grad, y, 1);
    });
    CHECK(mismatch(forward, expected) == "");
    CHECK(mismatch(backward, tensor_softmax_backward(grad, y, 1, log)) == "");
    CHECK(launches.size() == 2);
    for (const auto& launch : launches) {
      CHECK(launch["tier"] == "column");
      if (seen != nullptr) {
        seen->insert(launch["lane_packs"] == 0 ? 0 : launch["cluster"].get<int>());
      }
    }
  }
}

}  // namespace

WARPFUSE_GPU_TEST("inner sizes of all kinds", "[column]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t inner : {2, 3, 5, 8, 16, 31, 32, 33, 64, 65, 129, 264}) {
      for (const int64_t outer : {1, 3}) {
        for (const int64_t columns : {1, 2, 7, 33, 257}) {
          check({outer, columns, inner}, dtype, 0, device);
          check({outer, columns, inner}, dtype, 1, device);
        }
      }
    }
  }
}

WARPFUSE_GPU_TEST("tiles of one block up to a cluster's, and past it", "[column]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const auto& [inner, capacity] :
         std::vector<std::pair<int64_t, int64_t>>{{16, 1024}, {5, 256}}) {
      Blocks seen;
      for (int64_t blocks = 1; blocks <= 16; blocks *= 2) {
        for (const int64_t columns :
             {capacity * blocks - 1, capacity * blocks, capacity * blocks + 1}) {
          check({2, columns, inner}, dtype, 0, device, &seen);
        }
      }
      Blocks expected = {0};
      for (int blocks = 1; blocks <= row_limits().cluster_blocks; blocks *= 2) {
        expected.insert(blocks);
      }
      CHECK(seen == expected);
    }
  }
}

WARPFUSE_GPU_TEST("tensors that are aligned differently", "[column]") {
  for (const at::ScalarType dtype : kDtypes) {
    const std::vector<int64_t> shape = {3, 100, 32};
    for (const auto& [of_grad, of_output] :
         std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {1, 0}, {1, 1}, {1, 3}}) {
      const at::Tensor x = random_at(of_output, shape, dtype, device);
      const at::Tensor grad = random_at(of_grad, shape, dtype, device);
      CHECK(mismatch(warpfuse::softmax(x, 1), tensor_softmax(x, 1, false)) == "");
      x.copy_(at::softmax(x, 1));
      CHECK(mismatch(softmax_backward(grad, x, 1), tensor_softmax_backward(grad, x, 1, false)) ==
            "");
    }
  }
}

WARPFUSE_GPU_TEST("planted values in a tile stay in their row", "[column]") {
  for (const int64_t inner : {16, 5}) {
    for (const int64_t columns : {100, 3000, 20'000}) {
      const at::Tensor clean = random_at(0, {1, columns, inner}, at::kHalf, device);
      for (const SoftmaxOperator& op : kSoftmaxOperators) {
        const at::Tensor clean_output = op(clean, 1);
        for (const double planted : {kNaN, kInf, -kInf}) {
          for (const int64_t column : {int64_t{0}, columns / 2, columns - 1}) {
            const at::Tensor x = clean.clone();
            x[0][column][3].fill_(planted);
            const at::Tensor output = op(x, 1);
            INFO(op.name << " of " << describe(x) << ", " << planted << " at column " << column);
            CHECK(mismatch(output.select(2, 3), op.expected(x.select(2, 3), 1)) == "");
            output.select(2, 3).copy_(clean_output.select(2, 3));
            CHECK(output.eq(clean_output).all().item<bool>());
          }
        }
      }
    }
  }
}
