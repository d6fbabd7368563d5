#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <tuple>

#include "rowwise/tuning.h"

namespace warpfuse {
namespace {

// The texts of tables/, each a string: ops/CMakeLists.txt writes the file.
constexpr const char* kTexts[] = {
#include "rowwise/shipped_tables.inc"
};
// Without a GPU: the one on which the tables began.
constexpr const char* kUsual = "NVIDIA H200";

}  // namespace

std::optional<GpuModel> parse_gpu_line(const std::string& text) {
  std::istringstream words(text.substr(0, text.find('\n')));
  std::string hash, gpu, capability;
  GpuModel model;
  if (!(words >> hash >> gpu >> capability >> model.multiprocessors) || hash != "#" ||
      gpu != "gpu" || !std::getline(words >> std::ws, model.name)) {
    return std::nullopt;
  }
  const size_t dot = std::min(capability.find('.'), capability.size() - 1);
  model.capability = 10 * std::atoi(capability.c_str()) + std::atoi(capability.c_str() + dot + 1);
  return model;
}

std::string gpu_line(const GpuModel& gpu) {
  return "# gpu " + std::to_string(gpu.capability / 10) + "." +
         std::to_string(gpu.capability % 10) + " " + std::to_string(gpu.multiprocessors) + " " +
         gpu.name + "\n";
}

const std::vector<ShippedTable>& shipped_tables() {
  static const auto* tables = [] {  // outlives every static destructor
    auto* all = new std::vector<ShippedTable>;
    for (const std::string text : kTexts) {
      all->push_back({parse_gpu_line(text).value(), parse_tuning(text)});
    }
    return all;
  }();
  return *tables;
}

const ShippedTable& shipped_for(const std::optional<GpuModel>& gpu,
                                const std::vector<ShippedTable>& tables) {
  const auto distance = [&](const ShippedTable& table) {
    const GpuModel& known = table.gpu;
    return gpu ? std::tuple(known.name != gpu->name, std::abs(known.capability - gpu->capability),
                            std::abs(known.multiprocessors - gpu->multiprocessors))
               : std::tuple(known.name != kUsual, 0, 0);
  };
  return *std::ranges::min_element(tables, {}, distance);
}

Tuning default_tuning() { return shipped_for(std::nullopt, shipped_tables()).tuning; }

}  // namespace warpfuse
