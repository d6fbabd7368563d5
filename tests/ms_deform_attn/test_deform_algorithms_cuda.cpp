// The kernels of libwarpfuse_lab.so, each against grid_sample in double precision.

#include <ATen/core/dispatch/Dispatcher.h>

#include <cmath>

#include "support/captured.h"
#include "support/deform.h"
#include "support/devices.h"
#include "support/errors.h"
#include "support/inputs.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/poison.h"

namespace {

using Algorithm = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                             const at::Tensor&, const at::Tensor&, c10::string_view);

at::Tensor attend_by(const DeformInputs& in, const std::string& algorithm) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("warpfuse_lab::ms_deform_attn_algorithm", "")
                             .typed<Algorithm>();
  return op.call(in.value, in.shapes, in.starts, in.locations, in.weights, algorithm);
}

bool refuses(const DeformInputs& in, const std::string& algorithm) {
  return error_of([&] {
           attend_by(in, algorithm);
         }).find("warpfuse_lab::ms_deform_attn_algorithm: algorithm: expected") !=
         std::string::npos;
}

/// Whether the lab's operator takes the GPU; else the test is skipped.
bool has_lab() {
  const bool found = c10::Dispatcher::singleton()
                         .findSchema({"warpfuse_lab::ms_deform_attn_algorithm", ""})
                         .has_value();
  if (!found) {
    skip_test("libwarpfuse_lab.so is not built: it needs architecture 9.0a");
  }
  return found;
}

const std::vector<std::string> kRatios = {"tma",         "tma_ws:1:7", "tma_ws:2:6",   "tma_ws:4:4",
                                          "tma_ws:4:12", "tma_ws:8:8", "tma_ws_design"};
const std::vector<std::string> kOptions = {
    "tma:warps=8",
    "tma:stages=4:warps=8",
    "tma:points=1:scheduler=atomic",
    "tma:stages=2",
    "tma_ws:1:7:stages=1:empty=named",
    "tma_ws:2:6:stages=2:empty=named",
    "tma_ws:2:6:stages=4:empty=block",
    "tma_ws:2:6:points=1:scheduler=atomic",
    "tma_ws:4:4:stages=4:registers=shift",
    "tma_ws:4:12:registers=shift:scheduler=atomic",
    "tma_ws:8:8:stages=1",
    "tma_ws:3:5",
};

}  // namespace

WARPFUSE_GPU_TEST("deformable attention by all algorithms", "[ms_deform_attn][lab]") {
  if (!has_lab()) {
    return;
  }
  const Poison poison;
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t channels : {1, 3, 8, 30, 32, 33, 40, 64, 72}) {
      for (const int64_t points : {1, 3, 4, 5}) {
        const DeformShape shape{.batches = 7,
                                .queries = 37,
                                .channels = channels,
                                .points = points,
                                .levels = {{6, 4}, {3, 5}, {1, 1}, {9, 2}, {1, 7}}};
        const DeformInputs in(shape, dtype, device, points == 3 ? at::kFloat : dtype,
                              points == 4 ? at::kFloat : dtype);
        const Expected expected = expected_deform(in);
        for (const std::string& algorithm : kRatios) {
          INFO(shape.text() << ", " << dtype << ", " << algorithm);
          if (channels * in.value.element_size() % 16 != 0) {
            CHECK(refuses(in, algorithm));
          } else {
            CHECK(deform_mismatch(attend_by(in, algorithm), in, expected) == "");
          }
        }
        CHECK(deform_mismatch(attend_by(in, "gather"), in, expected) == "");
      }
    }
  }
}

WARPFUSE_GPU_TEST("the options of deformable attention's algorithms", "[ms_deform_attn][lab]") {
  if (!has_lab()) {
    return;
  }
  const Poison poison;
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t levels : {1, 2, 4}) {
      DeformShape shape{.batches = 3, .queries = 2001, .heads = 8, .channels = 32, .points = 4};
      shape.levels.assign(levels, {30, 17});
      const DeformInputs in(shape, dtype, device, at::kFloat, at::kFloat);
      const Expected expected = expected_deform(in);
      for (const std::string& algorithm : kOptions) {
        if (dtype == at::kDouble && algorithm.find("block") != std::string::npos) {
          continue;  // eight stages would be needed
        }
        INFO(shape.text() << ", " << dtype << ", " << algorithm);
        CHECK(deform_mismatch(attend_by(in, algorithm), in, expected) == "");
      }
    }
  }
}

WARPFUSE_GPU_TEST("what is not finite, or outside, by all algorithms", "[ms_deform_attn][lab]") {
  if (!has_lab()) {
    return;
  }
  const DeformShape shape{.queries = 60, .channels = 32};
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf}) {
    DeformInputs in(shape, dtype, device, at::kFloat, at::kFloat);
    in.locations.view(-1).slice(0, 0, std::nullopt, 7).fill_(NAN);
    in.locations.view(-1).slice(0, 1, std::nullopt, 11).fill_(INFINITY);
    in.locations.view(-1).slice(0, 2, std::nullopt, 13).fill_(-1e30);
    in.value.select(1, 5).fill_(INFINITY);
    in.value.select(1, 20).fill_(NAN);
    in.weights.view(-1).slice(0, 3, std::nullopt, 29).fill_(INFINITY);
    const at::Tensor expected = in.attend();
    for (const std::string& algorithm : kRatios) {
      INFO(algorithm);
      const at::Tensor output = attend_by(in, algorithm);
      CHECK(at::allclose(output, expected, 1e-3, 1e-3, /*equal_nan=*/true));
    }
    // Levels that do not fit the value.
    DeformInputs wrong(shape, dtype, device);
    wrong.shapes.select(0, 1).fill_(1000);
    const at::Tensor output = attend_by(wrong, "tma");
    CHECK(output.isfinite().all().item<bool>());
  }
}

WARPFUSE_GPU_TEST("deformable attention by tiles in a CUDA graph and on two streams",
                  "[ms_deform_attn][lab]") {
  if (!has_lab()) {
    return;
  }
  const DeformInputs in({.queries = 3000, .channels = 32}, at::kHalf, device);
  for (const std::string algorithm : {"tma", "tma_ws:2:6:scheduler=atomic"}) {
    const at::Tensor expected = attend_by(in, algorithm);
    CHECK(deform_mismatch(expected, in) == "");
    check_in_a_graph_and_on_two_streams([&] { return attend_by(in, algorithm); }, expected);
  }
}

WARPFUSE_GPU_TEST("tiles of deformable attention", "[sanitize-tiles]") {
  if (!has_lab()) {
    return;
  }
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf}) {
    const DeformShape shape{.queries = 9, .channels = 32, .levels = {{3, 4}, {1, 1}}};
    const DeformInputs host(shape, dtype, at::kCPU);
    DeformInputs in = host;
    move_to(device, {&in.value, &in.shapes, &in.starts, &in.locations, &in.weights});
    for (const std::string& algorithm : kRatios) {
      INFO(dtype << " " << algorithm);
      CHECK(deform_mismatch(attend_by(in, algorithm), host) == "");
    }
  }
}

WARPFUSE_GPU_TEST("names of algorithms that are not known", "[ms_deform_attn][lab]") {
  if (!has_lab()) {
    return;
  }
  const DeformInputs in({.channels = 32}, at::kHalf, device);
  for (const std::string name :
       {"", "tm", "tma_ws", "tma_ws:2", "tma_ws:0:8", "tma_ws:9:8", "tma_ws:6:2", "tma:stages=3",
        "tma:empty=block", "tma_ws:2:6:registers=shift", "tma_ws:4:12:stages=4:empty=named",
        "tma_ws:2:6:empty=block:scheduler=atomic", "tma_ws:2:6:warps=8"}) {
    INFO(name);
    CHECK(refuses(in, name));
  }
}
