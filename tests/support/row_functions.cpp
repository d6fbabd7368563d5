#include "row_functions.h"

#include "catch.h"
#include "compare.h"
#include "inputs.h"
#include "masks.h"
#include "poison.h"
#include "reference.h"

namespace {

using warpfuse::Direction;

at::Tensor random_on(const at::Device& device, at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::randn(sizes, at::TensorOptions(device)).mul_(3.0).to(dtype);
}

/// Arguments of each path through the mask's code.
std::vector<MaskArguments> mask_arguments(int64_t queries, int64_t keys, at::ScalarType dtype,
                                          const at::Device& device) {
  const auto options = at::TensorOptions(device);
  const at::Tensor visible = at::rand({queries, keys}, options).gt(0.25);
  const at::Tensor shut = at::rand({queries, keys}, options).lt(0.2);
  const at::Tensor bias = at::randn({queries, keys}, options).masked_fill(shut, -kInf);
  std::vector<MaskArguments> arguments = {
      // A rule that hides nothing: without rules, the kernels are softmax's.
      {.scale = 0.5, .key_lengths = at::full({1}, keys, options.dtype(at::kLong))},
      {.causal = "lower_right",
       .query_positions = at::randint(keys, {1, queries}, options.dtype(at::kLong)),
       .key_lengths = at::full({1}, keys - keys / 5, options.dtype(at::kLong))},
      {.scale = 0.7, .attn_mask = visible, .causal = "lower_right"},
      {.attn_mask = visible, .masked_value = -2.0},
      {.scale = 0.5, .attn_mask = bias.to(dtype)},
  };
  if (dtype != at::kFloat) {
    arguments.push_back({.attn_mask = bias});
  }
  return arguments;
}

MaskArguments mask_placed_at(int64_t offset, MaskArguments arguments, const at::Device& device) {
  if (arguments.attn_mask) {
    arguments.attn_mask = placed_at(offset, *arguments.attn_mask, device);
  }
  return to(device, arguments);
}

/// Whether each row starts at a pack and ends with one.
bool are_packs(const at::Tensor& rows) {
  return reinterpret_cast<uintptr_t>(rows.const_data_ptr()) % 16 == 0 &&
         rows.size(-1) * rows.element_size() % 16 == 0;
}

std::string mask_kind(const MaskArguments& a) {
  return std::string(!a.attn_mask                              ? "no mask tensor"
                     : a.attn_mask->scalar_type() != at::kBool ? "additive mask"
                     : a.masked_value                          ? "filling mask"
                                                               : "boolean mask") +
         (a.causal == "none" ? "" : ", causal");
}

// Whether the block's shared memory would hold what one more warp of a chunk needs.
bool has_room_for_a_warp_more(const nlohmann::json& launch) {
  const size_t warps = launch["threads"].get<size_t>() / 32;
  const auto bytes = launch["shared_bytes"].get<size_t>();
  return bytes + bytes / warps <= row_limits().shared_bytes;
}

}  // namespace

at::Tensor random_at(int64_t offset, at::IntArrayRef sizes, at::ScalarType dtype,
                     const at::Device& device) {
  return placed_at(offset, random_on(device, sizes, dtype), device);
}

std::vector<RowFunction> row_functions(int64_t heads, int64_t queries, int64_t keys,
                                       at::ScalarType dtype, const at::Device& device,
                                       const Offsets& offsets) {
  const std::vector<int64_t> shape = {1, heads, queries, keys};
  const at::Device maker = offsets.on_host ? at::Device(at::kCPU) : device;
  const at::Tensor made_x = random_on(maker, shape, dtype);
  const at::Tensor made_grad = random_on(maker, shape, dtype);
  const at::Tensor x = placed_at(offsets.input, made_x, device);
  const at::Tensor grad = placed_at(offsets.second, made_grad, device);
  std::vector<RowFunction> functions;
  for (const bool log : {false, true}) {
    const std::string name = log ? "log_softmax" : "softmax";
    const Expected expected = expected_softmax(made_x, -1, log);
    const at::Tensor made_y = expected.values.to(dtype);
    const at::Tensor y = placed_at(offsets.input, made_y, device);
    functions.push_back(
        {name, row_kind(Direction::forward, x.element_size()), x, false,
         [=] { return log ? warpfuse::log_softmax(x, -1) : warpfuse::softmax(x, -1); },
         [expected] { return Expected(expected); }});
    functions.push_back(
        {name + " backward", row_kind(Direction::backward, y.element_size()), y, false,
         [=] { return log ? log_softmax_backward(grad, y, -1) : softmax_backward(grad, y, -1); },
         [=] { return expected_softmax_backward(made_grad, made_y, -1, log); }});
  }
  for (const MaskArguments& made : mask_arguments(queries, keys, dtype, maker)) {
    const MaskArguments a = mask_placed_at(offsets.second, made, device);
    const Expected expected = expected_masked_softmax(made_x, made);
    const bool tensor = a.attn_mask.has_value();
    const bool rules = !tensor && dtype != at::kDouble;
    functions.push_back({mask_kind(a), attention_kind(Direction::forward, x.element_size(), tensor),
                         x, rules && are_packs(x), [=] { return masked_softmax(x, a); },
                         [expected] { return Expected(expected); }, !a.masked_value});
    if (a.attn_mask && a.attn_mask->scalar_type() != at::kBool) {
      continue;  // the backward does not look at an additive mask
    }
    const at::Tensor made_y = expected.values.to(dtype);
    const at::Tensor y = placed_at(offsets.input, made_y, device);
    functions.push_back({mask_kind(a) + ", backward",
                         attention_kind(Direction::backward, y.element_size(), tensor), y,
                         rules && are_packs(y) && are_packs(grad),
                         [=] { return masked_softmax_backward(grad, y, a); },
                         [=] { return expected_masked_softmax_backward(made_grad, made_y, made); },
                         !a.masked_value});
  }
  return functions;
}

std::vector<std::string> runs_of_all_tiers() {
  // Not every function has kernels of 8 packs a lane in the tiers warp and span.
  std::vector<std::string> runs = {
      "warp 128 4 1 0",   "warp 128 8 1 0",  "chunk 64 40 1 0",  "chunk 96 20 1 0",
      "span 64 4 1 0",    "span 96 1 1 0",   "span 96 8 1 0",    "block 128 4 1 0",
      "block 64 4 1 1",   "block 64 8 1 1",  "block 128 0 1 1",  "stream 128 0 1 0",
      "stream 32 0 64 0", "stream 64 0 4 1", "cluster 64 4 4 0", "cluster 32 8 4 1",
      "cluster 64 0 2 1", "block 64 0 1 0",  "block 64 8 1 0"};
  if (row_limits().cluster_blocks < 4) {
    std::erase_if(runs, [](const std::string& run) { return run.starts_with("cluster"); });
  }
  return runs;
}

bool runs_by_mask_tensor(const RowFunction& function) {
  const warpfuse::RowKind& kind = function.kind;
  return kind.masked && !kind.tensor &&
         (kind.element_bytes == 8 ||
          plan_of(kind, function.rows, function.span, function.chunk).tier ==
              warpfuse::Tier::stream);
}

warpfuse::RowPlan plan_of(const RowFunction& function) {
  const bool by_mask_tensor = runs_by_mask_tensor(function);
  warpfuse::RowKind kind = function.kind;
  kind.tensor |= by_mask_tensor;
  return plan_of(kind, function.rows, function.span && !by_mask_tensor, function.chunk);
}

void check_row_function(const RowFunction& function, const warpfuse::RowPlan& plan) {
  INFO(function.name << " of " << describe(function.rows) << ", " << plan.to_string());
  const Poison poison;
  const CounterDelta by_units("chunk.units");
  at::Tensor output;
  const nlohmann::json launches = launches_during([&] { output = function.run(); });
  CHECK(mismatch(output, function.expected()) == "");
  CHECK(static_cast<int>(launches.size()) == launches_of(plan));
  warpfuse::RowPlan launched = plan;
  if (by_units() == 1) {
    launched.threads = 256;  // whatever the table's line says
  }
  for (const nlohmann::json& launch : launches) {
    INFO(launch.dump());
    if (plan.tier == warpfuse::Tier::chunk && !has_room_for_a_warp_more(launch)) {
      launched.threads = std::min(launched.threads, launch["threads"].get<int>());
    }
    CHECK(is_launch_of(launch, launched));
  }
}
