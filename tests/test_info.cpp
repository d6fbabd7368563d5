// What the library says of itself.

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "support/devices.h"
#include "support/operators.h"
#include "support/pch.h"

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
#ifdef WARPFUSE_WITH_CUDA
  CHECK(info["cuda"].is_string());
  CHECK_FALSE(info["architectures"].empty());
#else
  CHECK(info["cuda"].is_null());
  CHECK(info["architectures"].empty());
#endif
}

TEST_CASE("device_info", "[info]") {
  const auto info = nlohmann::json::parse(warpfuse::device_info());
  CHECK(keys(info) == std::set<std::string>{"cpu_capability", "gpus"});
  const auto built = nlohmann::json::parse(warpfuse::build_info())["cpu_capabilities"];
  CHECK(std::find(built.begin(), built.end(), info["cpu_capability"]) != built.end());
  CHECK(info["gpus"].size() == (has_gpu() ? at::getNumGPUs() : 0));
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
}
