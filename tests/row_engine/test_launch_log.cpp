// The log of kernel launches, which benchmarks and these tests read.

#include "support/devices.h"
#include "support/inputs.h"
#include "support/pch.h"
#include "support/row_functions.h"

namespace {

using nlohmann::json;

json launches() { return json::parse(launches_json()); }

}  // namespace

TEST_CASE("the log is off until it is turned on, and empty then", "[log]") {
  const at::Tensor x = random_tensor({3, 33}, at::kFloat);
  record_launches(true);
  CHECK(launches() == json::array());
  warpfuse::softmax(x, -1);
  CHECK(launches() == json::array());  // the CPU launches nothing
  record_launches(false);
  CHECK(launches() == json::array());
}

WARPFUSE_GPU_TEST("launches are logged between on and off", "[log]") {
  const at::Tensor x = random_tensor({3, 33}, at::kFloat, device);
  record_launches(true);
  record_launches(false);
  warpfuse::softmax(x, -1);
  CHECK(launches().empty());
  record_launches(true);
  warpfuse::softmax(x, -1);
  CHECK(launches().size() == 1);
  warpfuse::softmax(x, 0);
  CHECK(launches().size() == 2);
  CHECK(launches()[1]["tier"] == "column");
  record_launches(false);
  warpfuse::softmax(x, -1);
  CHECK(launches().size() == 2);  // kept, and not added to
  record_launches(true);
  CHECK(launches().empty());
  record_launches(false);
  CHECK(launches_during([&] { warpfuse::softmax(x.narrow(0, 0, 0), -1); }).empty());
}

WARPFUSE_GPU_TEST("what the log says of a launch is so", "[log]") {
  for (const std::string& run : runs_of_all_tiers()) {
    const TuningInUse tuning(tuning_with(run));
    for (const at::ScalarType dtype : kDtypes) {
      for (const RowFunction& function : row_functions(3, 70, 1000, dtype, device, Offsets{})) {
        const warpfuse::RowPlan plan = plan_of(function);
        for (const json& launch : launches_during(function.run)) {
          INFO(run << ": " << launch.dump());
          CHECK(is_launch_of(launch, plan));
          const int64_t rows = 210;
          const bool warps = plan.tier == warpfuse::Tier::warp || plan.tier == warpfuse::Tier::span;
          const int64_t all = warps ? rows * plan.lanes / plan.threads : rows * plan.blocks;
          const auto grid = launch["grid"].get<int64_t>();
          CHECK((plan.ahead ? grid > 0 && grid <= all : grid >= all));
          CHECK(launch["kernel"] == (plan.lane_packs > 0     ? "registers"
                                     : plan.shared_bytes > 0 ? "shared"
                                                             : "none"));
          CHECK(launch["grid"].get<int64_t>() % launch["cluster"].get<int64_t>() == 0);
          CHECK(launch["registers"].get<int>() > 0);
          CHECK(launch["registers"].get<int>() <= 255);
          CHECK(launch["shared_bytes"].get<size_t>() >= plan.shared_bytes);
          CHECK(launch["shared_bytes"].get<size_t>() <= plan.shared_bytes + size_t{16} * 1024);
          CHECK(launch["local_bytes"].get<int64_t>() >= 0);
          const auto per_multiprocessor = launch["blocks_per_sm"].get<int>();
          CHECK(per_multiprocessor >= 1);
          CHECK(launch["warps_per_sm"] == per_multiprocessor * plan.threads / 32);
          CHECK(launch["warps_per_sm"] <= launch["max_warps_per_sm"]);
        }
      }
    }
  }
}
