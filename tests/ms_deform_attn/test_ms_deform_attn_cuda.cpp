// The kernels of ms_deform_attn on CUDA: which one runs, graphs and streams.

#include "support/captured.h"
#include "support/deform.h"
#include "support/devices.h"
#include "support/operators.h"
#include "support/pch.h"

WARPFUSE_GPU_TEST("deformable attention's branches", "[ms_deform_attn]") {
  const auto ran = [&](const DeformShape& shape, const std::string& counter) {
    const DeformInputs in(shape, at::kHalf, device);
    const int64_t before = warpfuse::call_count(counter);
    in.attend();
    return warpfuse::call_count(counter) - before;
  };
  CHECK(ran({.channels = 32}, "ms_deform_attn.vector") == 1);
  CHECK(ran({.channels = 30}, "ms_deform_attn.vector") == 0);
  CHECK(ran({.channels = 30}, "ms_deform_attn.scalar") == 1);
  CHECK(ran({.channels = 32}, "ms_deform_attn.split") == 1);
  CHECK(ran({.queries = 20000, .channels = 32}, "ms_deform_attn.split") == 0);
}

WARPFUSE_GPU_TEST("deformable attention of many rows", "[ms_deform_attn]") {
  const DeformShape shape{.batches = 3,
                          .queries = 4001,
                          .heads = 8,
                          .channels = 32,
                          .points = 4,
                          .levels = {{60, 60}, {17, 13}}};
  const DeformInputs in(shape, at::kHalf, device, at::kFloat, at::kFloat);
  CHECK(deform_mismatch(in.attend(), in) == "");
  CHECK(deform_mismatch(in.attend_softmax(), in, true) == "");
}

WARPFUSE_GPU_TEST("deformable attention in a CUDA graph and on two streams", "[ms_deform_attn]") {
  const DeformInputs in({.queries = 300, .channels = 32}, at::kHalf, device);
  check_in_a_graph_and_on_two_streams([&] { return in.attend(); }, in.attend());
}
