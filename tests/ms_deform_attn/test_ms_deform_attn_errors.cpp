// Bad arguments of ms_deform_attn.

#include "support/deform.h"
#include "support/devices.h"
#include "support/errors.h"
#include "support/pch.h"

namespace {

void check_error(const DeformInputs& in, const std::string& text) {
  CHECK(error_of([&] { in.attend(); }).substr(0, 7 + text.size()) == "Error: " + text);
}

template <typename Call>
void check_says(const Call& call, const std::string& text) {
  const std::string said = error_of(call);
  INFO(said);
  CHECK(said.find(text) != std::string::npos);
}

}  // namespace

WARPFUSE_DEVICE_TEST("arguments of deformable attention that do not fit", "[ms_deform_attn]") {
  const DeformInputs good(DeformShape{}, at::kFloat, device);
  DeformInputs in = good;
  const std::string op = "warpfuse::ms_deform_attn: ";
  in.value = good.value.to(at::kInt);
  check_error(in, op + "value: expected float64, float32, float16 or bfloat16, got Int");
  in.value = good.value.flatten(2);
  check_error(in, op + "value: expected shape [B, S, H, D], got [2, 39, 24]");
  in = good;
  in.shapes = good.shapes.to(at::kInt);
  check_error(in, op + "spatial_shapes: expected int64, got Int");
  in.shapes = good.shapes.slice(0, 0, 1);
  check_error(in, op + "level_start_index: expected shape [1], got [2]");
  in = good;
  in.locations = good.locations.to(at::kDouble);
  check_error(in,
              op + "sampling_locations: expected the value's dtype (Float) or float32, got Double");
  in.locations = good.locations.slice(0, 0, 1);
  check_error(in,
              op + "sampling_locations: expected shape [2, 5, 3, 2, 2, 2], got [1, 5, 3, 2, 2, 2]");
  in = good;
  in.weights = good.weights.slice(3, 0, 1);
  check_error(in, op + "attention_weights: expected shape [2, 5, 3, 2, 2], got [2, 5, 3, 1, 2]");
  check_says([&] { in.attend_softmax(); }, "attention_logits: expected shape");
}

WARPFUSE_GPU_TEST("more queries or points than kernels on a GPU count", "[ms_deform_attn]") {
  const DeformShape shape{.batches = 1, .queries = 1, .heads = 1, .points = 1, .levels = {{2, 2}}};
  const DeformInputs good(shape, at::kHalf, device);
  constexpr int64_t kMany = INT32_MAX - 31;
  const std::string op =
      "warpfuse::ms_deform_attn: sampling_locations: expected at most 2147483615 ";
  DeformInputs in = good;
  in.locations = good.locations.expand({1, kMany, 1, 1, 1, 2});
  in.weights = good.weights.expand({1, kMany, 1, 1, 1});
  check_error(in, op + "queries on a GPU, got 2147483616");
  in.locations = good.locations.expand({1, 1, 1, 1, kMany, 2});
  in.weights = good.weights.expand({1, 1, 1, 1, kMany});
  check_error(in, op + "points of a query and head on a GPU, got 1 levels of 2147483616");
}

TEST_CASE("tensors of deformable attention that are undefined", "[ms_deform_attn]") {
  const DeformInputs good(DeformShape{}, at::kFloat, at::kCPU);
  const std::vector<std::pair<std::string, at::Tensor DeformInputs::*>> tensors = {
      {"value", &DeformInputs::value},
      {"spatial_shapes", &DeformInputs::shapes},
      {"level_start_index", &DeformInputs::starts},
      {"sampling_locations", &DeformInputs::locations},
      {"attention_weights", &DeformInputs::weights}};
  for (const auto& [name, tensor] : tensors) {
    DeformInputs in = good;
    in.*tensor = at::Tensor();
    check_error(in,
                "warpfuse::ms_deform_attn: " + name + ": expected a tensor, got an undefined one");
  }
}

WARPFUSE_DEVICE_TEST("levels that do not fit the value", "[ms_deform_attn]") {
  const DeformInputs good(DeformShape{}, at::kFloat, device);
  const auto check = [&](const DeformInputs& in, const std::string& text) {
    check_says(
        [&] {
          warpfuse::ms_deform_attn(in.value, in.shapes, in.starts, in.locations, in.weights,
                                   /*check_shapes=*/true);
        },
        text);
    if (device.is_cuda()) {
      CHECK(in.attend().isfinite().all().item<bool>());  // nothing is read outside
    } else {
      check_says([&] { in.attend(); }, text);
    }
  };
  DeformInputs in = good;
  in.starts = good.starts + 1;
  check(in, "level_start_index: expected 0 at level 0");
  in = good;
  in.starts = good.starts - 100;
  check(in, "level_start_index: expected 0");
  in = good;
  in.shapes = -good.shapes;
  check(in, "spatial_shapes: expected sizes of at least 0, got -6 x -4 at level 0");
  in = good;
  in.value = good.value.slice(1, 0, 30);
  check(in, "value: expected S of at least the sum of the levels' pixels, got S = 30");
  in = good;
  in.shapes = good.shapes * (int64_t{1} << 60);
  check(in, "S = 39");
}
