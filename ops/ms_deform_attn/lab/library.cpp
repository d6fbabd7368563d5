// libwarpfuse_lab.so: algorithms of ms_deform_attn by name, to be tested and measured beside the
// plugin's.
//
//   gather                      the plugin's ms_deform_attn
//   tma                         a persistent kernel that reads 2 x 2 pixels by the TMA unit
//   tma_ws_design               the first draft of the next (design_kernel.cuh)
//   tma_ws:PRODUCERS:CONSUMERS  the same with warps that fill stages and warps that consume them
//
// Behind tma and tma_ws, in any order: :stages=1|2|4 :points=1|2 :scheduler=static|atomic
// :empty=mbarrier|named|block :registers=fixed|shift, and :warps=4|8 behind tma.

#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include "common/check.h"
#include "ms_deform_attn/deform_inputs.h"
#include "ms_deform_attn/lab/tile_algorithm.h"

namespace warpfuse::lab {
namespace {

constexpr const char* kName = "ms_deform_attn_algorithm";

#define WARPFUSE_LAB_CHECK(condition, argument, expected, ...)                             \
  TORCH_CHECK(condition, "warpfuse_lab::", kName, ": ", argument, ": expected ", expected, \
              ", got ", __VA_ARGS__)

// --- names ------------------------------------------------------------------------------------

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ':') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

int number(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : -1;
}

/// One of kValues whose text is `text`.
template <typename Value>
bool choose(Value& value, std::string_view text,
            std::initializer_list<std::pair<const char*, Value>> values) {
  for (const auto& [name, choice] : values) {
    if (text == name) {
      value = choice;
      return true;
    }
  }
  return false;
}

bool set_option(TileAlgorithm& algorithm, const std::string& part) {
  const size_t equals = part.find('=');
  if (equals == std::string::npos) {
    return false;
  }
  const std::string key = part.substr(0, equals), value = part.substr(equals + 1);
  if (key == "stages") {
    return choose(algorithm.stages, value, {{"1", 1}, {"2", 2}, {"4", 4}});
  }
  if (key == "points") {
    return choose(algorithm.point_buffers, value, {{"1", 1}, {"2", 2}});
  }
  if (key == "scheduler") {
    return choose(algorithm.atomic_scheduler, value, {{"static", false}, {"atomic", true}});
  }
  if (key == "warps" && !algorithm.has_roles()) {
    return choose(algorithm.consumers, value, {{"4", 4}, {"8", 8}});
  }
  if (key == "registers" && algorithm.has_roles()) {
    return choose(algorithm.shift_registers, value, {{"fixed", false}, {"shift", true}});
  }
  return key == "empty" && algorithm.has_roles() &&
         choose(algorithm.empty_signal, value,
                {{"mbarrier", EmptySignal::mbarrier},
                 {"named", EmptySignal::named},
                 {"block", EmptySignal::block}});
}

TileAlgorithm parse(std::string_view text) {
  const std::vector<std::string> parts = split(text);
  TileAlgorithm algorithm;
  size_t options = 1;
  bool known = parts[0] == "tma";
  if (text == "tma_ws_design") {
    return {.is_design = true, .producers = 2, .consumers = 6};
  }
  if (parts[0] == "tma_ws" && parts.size() >= 3) {
    algorithm.stages = 2;
    algorithm.producers = number(parts[1]);
    algorithm.consumers = number(parts[2]);
    known = algorithm.producers >= 1 && algorithm.consumers >= algorithm.producers &&
            algorithm.warps() <= kMaxWarps;
    options = 3;
  }
  for (size_t i = options; known && i < parts.size(); ++i) {
    known = set_option(algorithm, parts[i]);
  }
  WARPFUSE_LAB_CHECK(known, "algorithm",
                     "gather, tma, tma_ws:PRODUCERS:CONSUMERS (at most 16 warps) with its options, "
                     "or tma_ws_design",
                     text);
  WARPFUSE_LAB_CHECK(
      !algorithm.shift_registers || (algorithm.producers % 4 == 0 && algorithm.consumers % 4 == 0),
      "algorithm", "registers=shift where roles are whole warpgroups of 4 warps", text);
  WARPFUSE_LAB_CHECK(algorithm.empty_signal != EmptySignal::named ||
                         algorithm.consumers * algorithm.stages <= kNamedBarriers,
                     "algorithm", "empty=named with at most 15 stages in all", text);
  WARPFUSE_LAB_CHECK(algorithm.empty_signal != EmptySignal::block || !algorithm.atomic_scheduler,
                     "algorithm", "empty=block with scheduler=static", text);
  return algorithm;
}

// --- the operator -----------------------------------------------------------------------------

using Attend = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                          const at::Tensor&, const at::Tensor&, bool);

/// The plugin's operator, whose kernel for Meta checks shapes and dtypes.
const c10::TypedOperatorHandle<Attend>& plugin() {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("warpfuse::ms_deform_attn", "")
                             .typed<Attend>();
  return op;
}

at::Tensor attend_by_tiles(const DeformTensors& in, TileAlgorithm algorithm,
                           std::string_view name) {
  const auto on_meta = [](const at::Tensor& tensor) { return tensor.to(at::kMeta); };
  plugin().call(on_meta(in.value), on_meta(in.spatial_shapes), on_meta(in.level_start_index),
                on_meta(in.sampling_locations), on_meta(in.attention_weights), false);
  for (const at::Tensor& tensor :
       {in.spatial_shapes, in.level_start_index, in.sampling_locations, in.attention_weights}) {
    WARPFUSE_LAB_CHECK(tensor.device() == in.value.device(), "value", "tensors on one device",
                       c10::str(in.value.device(), " and ", tensor.device()));
  }
  const at::Tensor value = in.value.contiguous(), locations = in.sampling_locations.contiguous();
  const MsDeformAttnSizes sizes{value.size(0),    value.size(1),     value.size(2),
                                value.size(3),    locations.size(1), locations.size(3),
                                locations.size(4)};
  const int64_t head_bytes = sizes.channels * value.element_size();
  WARPFUSE_LAB_CHECK(
      head_bytes % 16 == 0 && at::cuda::getCurrentDeviceProperties()->major == 9, "algorithm",
      "gather where D * element size is no multiple of 16 bytes, or the GPU's compute "
      "capability is not 9.0",
      name);
  const std::vector<int64_t> shape{sizes.batches, sizes.queries, sizes.heads * sizes.channels};
  if (value.numel() == 0 || in.attention_weights.numel() == 0) {
    return at::zeros(shape, value.options());
  }
  at::Tensor output = at::empty(shape, value.options());
  const at::Tensor shapes = in.spatial_shapes.contiguous(),
                   starts = in.level_start_index.contiguous(),
                   weights = in.attention_weights.contiguous();
  const TileBox box(sizes, to_dtype(value.scalar_type()));
  const int64_t units =
      sizes.batches * sizes.heads * box.count * ((sizes.queries + box.rows() - 1) / box.rows());
  const auto is_aligned = [](const at::Tensor& tensor, int64_t bytes) {
    return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % bytes == 0;
  };
  WARPFUSE_LAB_CHECK(units < INT32_MAX && is_aligned(value, 16) &&
                         is_aligned(locations, 2 * locations.element_size()),
                     "algorithm",
                     "gather for values and locations that are not aligned, or so many", name);
  TileArguments arguments{
      {value.const_data_ptr(), shapes.const_data_ptr<int64_t>(), starts.const_data_ptr<int64_t>(),
       locations.const_data_ptr(), weights.const_data_ptr(), to_dtype(value.scalar_type()),
       to_dtype(locations.scalar_type()), to_dtype(weights.scalar_type()), sizes, false},
      output.mutable_data_ptr(),
      box,
      static_cast<int>(units),
      nullptr,
      nullptr,
      algorithm};
  if (algorithm.empty_signal == EmptySignal::block) {
    WARPFUSE_LAB_CHECK(algorithm.stages >= box.stages_per_batch(), "algorithm",
                       c10::str("empty=block with at least ", box.stages_per_batch(), " stages"),
                       name);
  }
  int blocks = 0;
  C10_CUDA_CHECK(tile_blocks(arguments, blocks));
  const at::Tensor maps =
      at::empty({blocks * sizes.levels * static_cast<int64_t>(sizeof(CUtensorMap))},
                value.options().dtype(at::kByte));
  arguments.level_maps = reinterpret_cast<CUtensorMap*>(maps.mutable_data_ptr());
  at::Tensor next_unit;
  if (algorithm.atomic_scheduler) {
    next_unit = at::zeros({1}, value.options().dtype(at::kInt));
    arguments.next_unit = reinterpret_cast<unsigned*>(next_unit.mutable_data_ptr<int>());
  }
  C10_CUDA_CHECK(launch_tiles(arguments, blocks, at::cuda::getCurrentCUDAStream()));
  return output;
}

at::Tensor attend(const at::Tensor& value, const at::Tensor& spatial_shapes,
                  const at::Tensor& level_start_index, const at::Tensor& sampling_locations,
                  const at::Tensor& attention_weights, c10::string_view algorithm) {
  if (algorithm == "gather") {
    return plugin().call(value, spatial_shapes, level_start_index, sampling_locations,
                         attention_weights, false);
  }
  const TileAlgorithm parsed = parse(algorithm);
  const c10::cuda::CUDAGuard guard(value.device());
  return attend_by_tiles(
      {value, spatial_shapes, level_start_index, sampling_locations, attention_weights}, parsed,
      algorithm);
}

TORCH_LIBRARY(warpfuse_lab, m) {
  m.def(
      "ms_deform_attn_algorithm(Tensor value, Tensor spatial_shapes, Tensor level_start_index, "
      "Tensor sampling_locations, Tensor attention_weights, str algorithm) -> Tensor");
  m.impl("ms_deform_attn_algorithm", c10::DispatchKey::CUDA, attend);
}

}  // namespace
}  // namespace warpfuse::lab
