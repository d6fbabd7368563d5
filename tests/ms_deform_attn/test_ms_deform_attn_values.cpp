// ms_deform_attn against grid_sample in float64: dtypes, channels, levels and points, layouts.

#include <functional>

#include "support/autocast.h"
#include "support/compare.h"
#include "support/deform.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/pch.h"
#include "support/poison.h"

namespace {

void check_values(const DeformInputs& inputs) {
  const Poison poison;
  CHECK(deform_mismatch(inputs.attend(), inputs) == "");
  CHECK(deform_mismatch(inputs.attend_softmax(), inputs, /*softmax=*/true) == "");
}

}  // namespace

WARPFUSE_DEVICE_TEST("deformable attention: channels of every kind", "[ms_deform_attn][portable]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t channels : {1, 3, 8, 24, 30, 32, 33, 64, 256, 300, 520}) {
      const DeformShape shape{.channels = channels};
      INFO(dtype << " " << shape.text());
      check_values({shape, dtype, device});
    }
  }
}

WARPFUSE_DEVICE_TEST("deformable attention: levels and points", "[ms_deform_attn][portable]") {
  for (int64_t levels = 1; levels <= 5; ++levels) {
    for (const int64_t points : {1, 2, 3, 4, 5, 16, 70}) {
      DeformShape shape{.channels = 32, .points = points};
      shape.levels = {{9, 13}, {5, 7}, {3, 3}, {2, 1}, {1, 1}};
      shape.levels.resize(levels);
      INFO(shape.text());
      check_values({shape, at::kFloat, device});
      check_values({shape, at::kHalf, device, at::kFloat, at::kFloat});
    }
  }
}

WARPFUSE_DEVICE_TEST("deformable attention: far pixels are interpolated as the first ones",
                     "[ms_deform_attn][portable]") {
  // A coordinate of 20,000 has an error of 2^-10 in float32, its distance from a pixel need not.
  const DeformShape shape{.queries = 40, .channels = 32, .levels = {{2, 20001}, {15001, 2}}};
  check_values({shape, at::kFloat, device});
  check_values({shape, at::kHalf, device, at::kFloat, at::kFloat});
}

WARPFUSE_DEVICE_TEST("deformable attention: batches, queries and heads",
                     "[ms_deform_attn][portable]") {
  for (const int64_t batches : {1, 2, 7}) {
    for (const int64_t queries : {1, 31, 65, 300}) {
      for (const int64_t heads : {1, 8}) {
        const DeformShape shape{
            .batches = batches, .queries = queries, .heads = heads, .channels = 16};
        INFO(shape.text());
        check_values({shape, at::kBFloat16, device, at::kFloat, at::kBFloat16});
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("deformable attention: locations and weights of each dtype",
                     "[ms_deform_attn]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const at::ScalarType location_dtype : {dtype, at::kFloat}) {
      for (const at::ScalarType weight_dtype : {dtype, at::kFloat}) {
        INFO(dtype << " " << location_dtype << " " << weight_dtype);
        check_values({DeformShape{.queries = 70}, dtype, device, location_dtype, weight_dtype});
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("deformable attention: strides and alignment", "[ms_deform_attn]") {
  const DeformShape shape{.queries = 9, .channels = 32};
  const std::vector<std::pair<const char*, std::function<void(DeformInputs&)>>> layouts = {
      {"head-major value",
       [](DeformInputs& in) { in.value = in.value.transpose(1, 2).contiguous().transpose(1, 2); }},
      {"a value that starts behind a 16-byte boundary",
       [&](DeformInputs& in) { in.value = placed_at(1, in.value, device); }},
      {"points before levels, and every second weight", [](DeformInputs& in) {
         in.locations = in.locations.transpose(3, 4).contiguous().transpose(3, 4);
         in.weights = in.weights.repeat_interleave(2, -1).slice(-1, 0, std::nullopt, 2);
         in.shapes = in.shapes.t().contiguous().t();
       }}};
  for (const at::ScalarType dtype : kDtypes) {
    for (const auto& [name, lay_out] : layouts) {
      DeformInputs in(shape, dtype, device);
      lay_out(in);
      INFO(dtype << ", " << name);
      check_values(in);
    }
  }
}

WARPFUSE_DEVICE_TEST("deformable attention under autocast", "[autocast][ms_deform_attn]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const at::ScalarType other : {dtype, at::kFloat}) {
      const DeformInputs inputs({}, dtype, device, other, other);
      for (const at::ScalarType to : {at::kBFloat16, at::kHalf}) {
        INFO(dtype << " with " << other << ", autocast to " << to);
        DeformInputs cast = inputs;
        if (dtype != at::kDouble) {
          cast.value = inputs.value.to(to);
          cast.weights = inputs.weights.to(to);
          cast.locations = inputs.locations.to(at::kFloat);
        }
        const at::Tensor plain = cast.attend(), softmax = cast.attend_softmax();
        const Autocast autocast(device.type(), to);
        CHECK(bit_mismatch(inputs.attend(), plain) == "");
        CHECK(bit_mismatch(inputs.attend_softmax(), softmax) == "");
      }
    }
  }
}
