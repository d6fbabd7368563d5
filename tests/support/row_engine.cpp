#include "row_engine.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "before_tests.h"

#ifdef WARPFUSE_WITH_CUDA
#include <rowwise/cuda/device_limits.h>
#endif

namespace {

const warpfuse::Tuning& parsed_tuning() {
  static std::string text;
  static warpfuse::Tuning tuning;
  if (std::string now = library_tuning(); now != text) {
    tuning = warpfuse::parse_tuning(now);
    text = std::move(now);
  }
  return tuning;
}

warpfuse::RowLimits device_row_limits() {
#ifdef WARPFUSE_WITH_CUDA
  return warpfuse::cuda::device_limits().rows;
#else
  return {0, 1, 1, false};
#endif
}

}  // namespace

std::string tuning_with(const std::string& run) {
  std::string lines, refusal;
  for (const char* direction : {"forward", "backward"}) {
    for (const int bytes : {2, 4, 8}) {
      const std::string line = c10::str(direction, ' ', bytes, " * * ", run, '\n');
      try {
        warpfuse::parse_tuning(line + kLastEntries);
        lines += line;
      } catch (const std::invalid_argument& error) {
        refusal = error.what();
      }
    }
  }
  if (lines.empty()) {
    throw std::invalid_argument(refusal);
  }
  return lines + library_tuning();
}

std::string tuning_from(const std::string& limits_or_file) {
  std::ostringstream text;
  if (limits_or_file.find('=') == std::string::npos) {
    std::ifstream file(limits_or_file);
    if (!file) {
      throw std::invalid_argument("cannot read " + limits_or_file);
    }
    text << file.rdbuf();
    return text.str();
  }
  // The last limit of a kind counts.
  text << library_tuning();
  std::istringstream limits(limits_or_file);
  for (std::string limit; std::getline(limits, limit, ',');) {
    const size_t equals = limit.find('=');
    if (equals == std::string::npos) {
      throw std::invalid_argument("expected limits such as shared_bytes=101376, got " + limit);
    }
    text << "limit " << limit.substr(0, equals) << ' ' << limit.substr(equals + 1) << '\n';
  }
  return text.str();
}

warpfuse::RowLimits row_limits() { return warpfuse::lower(device_row_limits(), parsed_tuning()); }

warpfuse::RowKind row_kind(warpfuse::Direction direction, int64_t element_bytes) {
  return {.direction = direction,
          .element_bytes = static_cast<int>(element_bytes),
          .plain = true,
          .masked = false,
          .dropout = false};
}

warpfuse::RowKind attention_kind(warpfuse::Direction direction, int64_t element_bytes,
                                 bool tensor) {
  return {.direction = direction,
          .element_bytes = static_cast<int>(element_bytes),
          .plain = false,
          .masked = true,
          .dropout = false,
          .tensor = tensor};
}

warpfuse::RowShape row_shape(const warpfuse::RowKind& kind, const at::Tensor& tensor, bool span) {
  const int pack = 16 / kind.element_bytes;
  const int64_t columns = tensor.size(-1);
  const auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  const bool aligned = address % 16 == 0 && columns % pack == 0;
  const bool lines = address % 128 == 0 && columns * kind.element_bytes % 128 == 0;
  return {kind,
          columns / pack,
          aligned ? columns % pack : std::min(columns, int64_t{2} * (pack - 1)),
          tensor.numel() / columns,
          span,
          lines ? 0 : 7};
}

warpfuse::RowPlan plan_of(const warpfuse::RowKind& kind, const at::Tensor& tensor, bool span,
                          bool chunk) {
  warpfuse::RowShape shape = row_shape(kind, tensor, span);
  shape.chunk = chunk;
  return warpfuse::plan_rows(shape, device_row_limits(), parsed_tuning());
}

warpfuse::RowPlan plan_of(warpfuse::Direction direction, const at::Tensor& tensor) {
  return plan_of(row_kind(direction, tensor.element_size()), tensor);
}

std::optional<warpfuse::RowPlan> plan_by_name(const std::string& tier, const at::Tensor& tensor) {
  for (const warpfuse::Tier known : {warpfuse::Tier::warp, warpfuse::Tier::block,
                                     warpfuse::Tier::cluster, warpfuse::Tier::stream}) {
    warpfuse::RowPlan plan{};
    if (tier == warpfuse::to_string(known) &&
        warpfuse::plan_tier(
            known, row_shape(row_kind(warpfuse::Direction::forward, tensor.element_size()), tensor),
            device_row_limits(), parsed_tuning(), &plan)) {
      return plan;
    }
  }
  return std::nullopt;
}

warpfuse::ColumnPlan column_plan_of(warpfuse::Direction direction,
                                    const std::vector<at::Tensor>& tensors) {
  const at::Tensor& first = tensors.front();
  const int bytes = static_cast<int>(first.element_size()), pack = 16 / bytes;
  const auto aligned = [&](int64_t vector) {
    const auto step = static_cast<uintptr_t>(vector * bytes);
    return first.size(2) % vector == 0 &&
           std::ranges::all_of(tensors, [&](const at::Tensor& tensor) {
             return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % step == 0;
           });
  };
  const int vector = aligned(pack) ? pack : bytes == 2 && aligned(2) ? 2 : 1;
  return warpfuse::plan_columns(
      {direction, bytes, first.size(1), first.size(0), first.size(2), vector}, device_row_limits(),
      parsed_tuning());
}

int launches_of(const warpfuse::RowPlan& plan) {
  return plan.tier == warpfuse::Tier::stream && !plan.ahead ? 2 : 1;
}

std::vector<std::string> algorithms_on(const at::Device& device) {
  if (!device.is_cuda()) {
    return {"naive", "vector"};
  }
  std::vector<std::string> names = {"naive", "warp", "block", "stream"};
  if (row_limits().cluster_blocks > 1) {
    names.emplace_back("cluster");
  }
  return names;
}

bool is_launch_of(const nlohmann::json& launch, const warpfuse::RowPlan& plan) {
  return launch["tier"] == warpfuse::to_string(plan.tier) && launch["threads"] == plan.threads &&
         launch["lane_packs"] == plan.lane_packs &&
         launch["cluster"] == (plan.tier == warpfuse::Tier::cluster ? plan.blocks : 1) &&
         launch["shared_bytes"] >= plan.shared_bytes;
}

bool is_launch_of(const nlohmann::json& launch, const warpfuse::ColumnPlan& plan) {
  const int64_t all = plan.tiles * plan.blocks;
  return launch["tier"] == "column" && launch["threads"] == plan.threads &&
         launch["lane_packs"] == plan.lane_packs && launch["cluster"] == plan.blocks &&
         (plan.ahead ? launch["grid"] <= all : launch["grid"] == all);
}

// The program's tests run under the table that WARPFUSE_TEST_TUNING names.
static const int registered = before_tests([] {
  if (const char* asked = std::getenv("WARPFUSE_TEST_TUNING")) {
    const std::string text = tuning_from(asked);
    warpfuse::parse_tuning(text);  // whose error is one line
    set_library_tuning(text);
  }
});
