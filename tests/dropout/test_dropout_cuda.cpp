// Dropout in each tier of the GPU's row engine: what is dropped does not depend on where a row
// lives. (CUDA graphs: tests/python/test_dropout.py.)

#include <algorithm>
#include <cmath>
#include <set>

#include "support/devices.h"
#include "support/dropout_checks.h"
#include "support/pch.h"
#include "support/row_functions.h"

namespace {

/// [1, 2, 3, columns], or of few columns [1, 20, 31, columns], `offset` elements behind an aligned
/// address.
struct Rows {
  int64_t columns;
  int64_t offset;
};

// One pack and less, edges, 5 and 6 packs a lane, rows that begin anywhere in a Philox block, in
// the middle of one every other time, and long ones.
constexpr Rows kRows[] = {{2, 0},    {3, 1},    {8, 0},    {13, 0},    {33, 0},
                          {40, 0},   {48, 0},   {130, 1},  {512, 0},   {1003, 3},
                          {1004, 0}, {2048, 0}, {9001, 5}, {40'000, 0}};

at::Tensor random_rows(const Rows& rows, at::ScalarType dtype, const at::Device& device) {
  const bool few = rows.columns < 50;
  return random_at(rows.offset, {1, few ? 20 : 2, few ? 31 : 3, rows.columns}, dtype, device);
}

/// Whether a launch of `call` was of warps with so many packs per lane.
template <typename Call>
bool runs_warps(int lane_packs, const Call& call) {
  const nlohmann::json launches = launches_during(call);
  return std::ranges::any_of(launches, [&](const nlohmann::json& launch) {
    return launch["tier"] == "warp" && launch["lane_packs"] == lane_packs;
  });
}

}  // namespace

WARPFUSE_GPU_TEST("values and gradients with dropout in each tier", "[dropout][portable]") {
  const std::vector<std::string> tiers = {"warp", "chunk", "block", "stream", "cluster"};
  std::set<std::string> wanted, ran;
  for (const std::string& run : runs_of_all_tiers()) {
    const TuningInUse tuning(tuning_with(run));
    for (const std::string& tier : tiers) {
      if (run.starts_with(tier)) {
        wanted.insert(tier);
      }
    }
    INFO(run);
    std::vector<CounterDelta> calls;
    for (const std::string& tier : tiers) {
      calls.emplace_back("tier." + tier);
    }
    for (const at::ScalarType dtype : kDtypes) {
      for (const Rows& rows : kRows) {
        const at::Tensor x = random_rows(rows, dtype, device);
        for (const DropoutCall& order : kOrders) {
          check_dropout(x, with(order, -1, 0.3));
        }
        for (const MaskArguments& arguments :
             {MaskArguments{.scale = 0.5}, MaskArguments{.scale = 0.5, .causal = "lower_right"},
              MaskArguments{.attn_mask = random_bool({x.size(2), rows.columns}, device)},
              MaskArguments{.attn_mask = random_tensor({rows.columns}, dtype, device)}}) {
          check_masked_dropout(x, arguments, 0.3);
        }
      }
    }
    for (size_t i = 0; i < tiers.size(); ++i) {
      if (calls[i]() > 0) {
        ran.insert(tiers[i]);
      }
    }
  }
  CHECK(ran == wanted);
}

WARPFUSE_GPU_TEST("warps of 6 and 8 packs, most of which hold no visible key",
                  "[dropout][portable]") {
  for (const auto& [lane_packs, columns] : {std::pair{6, 768}, std::pair{8, 1003}}) {
    const TuningInUse tuning(tuning_with(c10::str("warp 64 ", lane_packs, " 1 0")));
    INFO(lane_packs << " packs");
    for (const at::ScalarType dtype : kDtypes) {
      const at::Tensor x = random_tensor({3, 2, 130, columns}, dtype, device);
      for (const MaskArguments& arguments :
           {MaskArguments{.causal = "upper_left"},
            MaskArguments{.key_lengths = at::tensor({0, 70, 600}, at::kLong).to(device)}}) {
        const bool runs = runs_warps(lane_packs, [&] { check_masked_dropout(x, arguments, 0.3); });
        CHECK((dtype == at::kDouble || runs));
      }
    }
  }
}

WARPFUSE_GPU_TEST("dropout_softmax in warps of 6 packs", "[dropout][portable]") {
  const TuningInUse tuning(tuning_with("warp 64 6 1 0"));
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    for (const Rows& rows : {Rows{1040, 0}, Rows{1531, 3}, Rows{1536, 0}}) {
      const at::Tensor x = random_rows(rows, dtype, device);
      CHECK(runs_warps(6, [&] { check_dropout(x, {.p = 0.3}); }));
    }
  }
}

WARPFUSE_GPU_TEST("rare and usual elements are dropped by the same numbers",
                  "[dropout][portable]") {
  // Thresholds whose upper bits are those of a half precision number, of infinity (31 / 32), and
  // above; and one that the bits of the whole block decide.
  const double infinity = 31.0 / 32;
  for (const double p : {std::ldexp(1.0, -16), infinity - std::ldexp(1.0, -16), infinity,
                         infinity + std::ldexp(1.0, -16), 0.99, 1 - std::ldexp(1.0, -15)}) {
    for (const at::ScalarType dtype : kDtypes) {
      for (const DropoutCall& order : kOrders) {
        // What is kept is scaled by 1 / (1 - p), and an exponential that vanishes is 0 in one
        // library and the smallest number in another.
        const double spread = 1 - p;
        check_dropout(random_tensor({64, 2048}, dtype, device, spread), with(order, -1, p));
        check_dropout(random_tensor({7, 1003}, dtype, device, spread), with(order, -1, p));
      }
    }
  }
}

WARPFUSE_GPU_TEST("the GPU drops what the CPU drops, in each tier", "[dropout][portable]") {
  const at::Tensor rng = rng_of(-5, 1 << 30, at::kCPU);
  for (const at::ScalarType dtype : kDtypes) {
    for (const Rows& rows : kRows) {
      const at::Tensor ones = at::ones({6, rows.columns}, dtype);
      const DropoutCall call{.dim = 1, .p = 0.4, .softmax_first = true};
      const at::Tensor kept = std::get<0>(dropout_softmax(ones, call, rng)) != 0;
      for (const std::string& run : runs_of_all_tiers()) {
        const TuningInUse tuning(tuning_with(run));
        INFO(run << ", " << describe(ones));
        const auto on_gpu = dropout_softmax(ones.to(device), call, rng.to(device));
        CHECK((std::get<0>(on_gpu) != 0).cpu().equal(kept));
      }
    }
  }
}
