#pragma once

// The GPU's row engine as tests look at it: the tuning table in use, what it plans for a tensor,
// other tables for a while, and the log of launches.

#include <rowwise/tuning.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "operators.h"

/// Elements of a pack.
inline int64_t pack_of(at::ScalarType dtype) {
  return static_cast<int64_t>(16 / c10::elementSize(dtype));
}

/// Another tuning table in the library while this lives.
class TuningInUse {
 public:
  explicit TuningInUse(const std::string& table) : before_(library_tuning()) {
    set_library_tuning(table);
  }
  ~TuningInUse() { set_library_tuning(before_); }
  TuningInUse(const TuningInUse&) = delete;
  TuningInUse& operator=(const TuningInUse&) = delete;

 private:
  std::string before_;
};

/// The shortest table: an entry for all rows of each kind, and one for all rows that are not
/// contiguous.
inline constexpr const char* kLastEntries = R"(
forward 2 * * stream 512 0 0 0
forward 4 * * stream 512 0 0 0
forward 8 * * stream 512 0 0 0
backward 2 * * stream 512 0 0 0
backward 4 * * stream 512 0 0 0
backward 8 * * stream 512 0 0 0
forward 2 * * column 512 0 1 0
forward 4 * * column 512 0 1 0
forward 8 * * column 512 0 1 0
backward 2 * * column 512 0 1 0
backward 4 * * column 512 0 1 0
backward 8 * * column 512 0 1 0
)";

/// The table in use with `run`, "tier threads lane_packs blocks ahead", before its own entries, for
/// each direction and size of elements that has a kernel for it: other rows, and rows that it
/// cannot hold, go on to those. Throws std::invalid_argument where none has.
std::string tuning_with(const std::string& run);

/// The table in use with other limits, "shared_bytes=101376,cluster_blocks=1"; or the text of the
/// file of this name. Throws std::invalid_argument.
std::string tuning_from(const std::string& limits_or_file);

/// What the table in use lets a block and a cluster of the current GPU have.
warpfuse::RowLimits row_limits();

/// What softmax and log_softmax are for their plan, and attention without dropout.
warpfuse::RowKind row_kind(warpfuse::Direction direction, int64_t element_bytes);
warpfuse::RowKind attention_kind(warpfuse::Direction direction, int64_t element_bytes,
                                 bool tensor = false);

/// The rows of a contiguous tensor's last dimension. It is the forward's input, or the output that
/// a backward takes. span: the tier span can take them.
warpfuse::RowShape row_shape(const warpfuse::RowKind& kind, const at::Tensor& tensor,
                             bool span = false);

/// The plan of the table in use for these rows, of softmax where no kind is given; and that of one
/// tier by its name, if it has one.
warpfuse::RowPlan plan_of(const warpfuse::RowKind& kind, const at::Tensor& tensor,
                          bool span = false, bool chunk = true);
warpfuse::RowPlan plan_of(warpfuse::Direction direction, const at::Tensor& tensor);
std::optional<warpfuse::RowPlan> plan_by_name(const std::string& tier, const at::Tensor& tensor);

/// The plan for rows over dimension 1 of [outer, columns, inner]: all of these tensors are read or
/// written.
warpfuse::ColumnPlan column_plan_of(warpfuse::Direction direction,
                                    const std::vector<at::Tensor>& tensors);

/// Kernel launches of a plan.
int launches_of(const warpfuse::RowPlan& plan);

/// The names that _softmax_algorithm takes on a device, "cluster" where that can run.
std::vector<std::string> algorithms_on(const at::Device& device);

inline constexpr const char* kNoClusters =
    "no clusters: a GPU before Hopper, a library without its code, or a table that forbids them";

/// What the log says of the launches of `call`.
template <typename Call>
nlohmann::json launches_during(const Call& call) {
  record_launches(true);
  call();
  record_launches(false);
  return nlohmann::json::parse(launches_json());
}

/// Whether one launch was that of the plan: its tier, threads, packs a lane, cluster, and memory.
bool is_launch_of(const nlohmann::json& launch, const warpfuse::RowPlan& plan);
bool is_launch_of(const nlohmann::json& launch, const warpfuse::ColumnPlan& plan);
