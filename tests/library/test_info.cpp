// What the library says of itself.

#include <info/has_code.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "support/devices.h"
#include "support/inputs.h"
#include "support/operators.h"
#include "support/pch.h"

#ifdef WARPFUSE_WITH_CUDA
#include <ATen/detail/CUDAHooksInterface.h>
#include <common/gpu_probe.h>
#include <warpfuse/softmax.h>
#endif

namespace {

std::set<std::string> keys(const nlohmann::json& object) {
  std::set<std::string> names;
  for (const auto& [name, value] : object.items()) {
    names.insert(name);
  }
  return names;
}

}  // namespace

TEST_CASE("build_info", "[info]") {
  const auto info = nlohmann::json::parse(warpfuse::build_info());
  CHECK(keys(info) == std::set<std::string>{"version", "schema_version", "libtorch", "cuda",
                                            "architectures", "cpu_capabilities", "compiler"});
  CHECK(info["version"] == WARPFUSE_VERSION);
  CHECK(info["schema_version"] == WARPFUSE_SCHEMA_VERSION);
  CHECK(info["libtorch"].get<std::string>().rfind("2.", 0) == 0);
  CHECK_FALSE(info["cpu_capabilities"].empty());
  // Without kernels of their own, tests may be run against a library that has some (.ci/run).
#ifdef WARPFUSE_WITH_CUDA
  CHECK(info["cuda"].is_string());
#endif
  CHECK(info["cuda"].is_null() == info["architectures"].empty());
}

TEST_CASE("device_info", "[info]") {
  const auto info = nlohmann::json::parse(warpfuse::device_info());
  CHECK(keys(info) == std::set<std::string>{"cpu_capability", "gpus", "tuning"});
  const auto built = nlohmann::json::parse(warpfuse::build_info())["cpu_capabilities"]
                         .get<std::set<std::string>>();
  CHECK(built.contains(info["cpu_capability"].get<std::string>()));
  CHECK(info["gpus"].size() == (has_gpu() ? at::getNumGPUs() : 0));
}

TEST_CASE("which GPUs a list of architectures has code for", "[info]") {
  struct Case {
    const char* architectures;
    std::vector<std::pair<int, int>> with, without;
  };
  for (const Case& c : std::vector<Case>{
           {"none", {}, {{8, 0}, {9, 0}}},
           {"8.0", {{8, 0}, {8, 6}, {8, 9}}, {{7, 5}, {9, 0}, {10, 0}, {12, 0}}},
           {"8.6", {{8, 6}, {8, 9}}, {{8, 0}, {9, 0}}},
           {"9.0a", {{9, 0}}, {{8, 0}, {9, 1}, {10, 0}, {12, 0}}},
           {"9.0a+PTX", {{9, 0}}, {{9, 1}, {10, 0}, {12, 0}}},
           {"10.0f", {{10, 0}, {10, 3}}, {{9, 0}, {11, 0}, {12, 0}}},
           {"10.0f+PTX", {{10, 0}, {10, 3}}, {{11, 0}, {12, 0}}},
           {"8.0+PTX", {{8, 0}, {8, 9}, {9, 0}, {12, 1}}, {{7, 5}}},
           {"8.6+PTX", {{8, 6}, {9, 0}}, {{8, 0}, {7, 5}}},
           {"8.0, 8.9, 9.0a, 10.0, 12.0+PTX",
            {{8, 0}, {8, 7}, {9, 0}, {10, 0}, {10, 3}, {12, 0}, {12, 1}, {13, 0}},
            {{7, 5}, {9, 1}, {11, 0}}},
       }) {
    for (const auto& [major, minor] : c.with) {
      INFO(c.architectures << " on " << major << "." << minor);
      CHECK(warpfuse::has_code_for(c.architectures, major, minor));
    }
    for (const auto& [major, minor] : c.without) {
      INFO(c.architectures << " on " << major << "." << minor);
      CHECK_FALSE(warpfuse::has_code_for(c.architectures, major, minor));
    }
  }
}

TEST_CASE("WARPFUSE_CPU_CAPABILITY lowers the instruction set", "[capability]") {
  const char* asked = std::getenv("WARPFUSE_CPU_CAPABILITY");
  if (asked == nullptr) {
    skip_test("WARPFUSE_CPU_CAPABILITY is not set");
    return;
  }
  CHECK(nlohmann::json::parse(warpfuse::device_info())["cpu_capability"] == asked);
}

WARPFUSE_GPU_TEST("device_info of a GPU", "[info]") {
  const auto gpu = nlohmann::json::parse(warpfuse::device_info())["gpus"][device.index()];
  CHECK(keys(gpu) == std::set<std::string>{"index", "name", "compute_capability", "memory_bytes",
                                           "multiprocessors", "has_kernel"});
  CHECK(gpu["index"] == device.index());
  CHECK(gpu["memory_bytes"].get<int64_t>() > 1 << 30);
  CHECK(gpu["multiprocessors"].get<int64_t>() > 0);
  CHECK(gpu["has_kernel"] == true);
#ifdef WARPFUSE_WITH_CUDA
  CHECK(warpfuse::code_version_for_current_gpu() > 0);  // what the driver says of it
#endif
}

#ifdef WARPFUSE_WITH_CUDA
// Runs in a process of its own (so it has no tag [gpu]): other tests have made contexts.
TEST_CASE("only a GPU that is used gets a context", "[.][contexts]") {
  if (!has_gpu()) {
    skip_test(kNoGpu);
    return;
  }
  const auto with_context = [] {
    std::vector<int64_t> indices;
    for (int64_t i = 0; i < static_cast<int64_t>(at::getNumGPUs()); ++i) {
      if (at::detail::getCUDAHooks().hasPrimaryContext(static_cast<c10::DeviceIndex>(i))) {
        indices.push_back(i);
      }
    }
    return indices;
  };
  REQUIRE(with_context().empty());
  CHECK_FALSE(nlohmann::json::parse(warpfuse::device_info())["gpus"].empty());
  CHECK(with_context().empty());
  const int64_t last = static_cast<int64_t>(at::getNumGPUs()) - 1;
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(last));
  const at::Tensor output = warpfuse::softmax(random_tensor({3, 64}, at::kFloat, device), -1);
  CHECK(output.cpu().sum().item<float>() > 2.9F);
  warpfuse::device_info();
  CHECK(with_context() == std::vector<int64_t>{last});
  if (last == 0) {
    skip_test("one GPU alone");
  }
}
#endif
