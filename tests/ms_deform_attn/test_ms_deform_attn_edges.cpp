// Edges of ms_deform_attn: what is empty, locations and values that are not finite, borders.

#include <cmath>

#include "support/deform.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/pch.h"
#include "support/poison.h"

WARPFUSE_DEVICE_TEST("deformable attention of nothing", "[ms_deform_attn]") {
  const Poison poison;
  for (const DeformShape& shape :
       {DeformShape{.batches = 0}, DeformShape{.queries = 0}, DeformShape{.heads = 0},
        DeformShape{.channels = 0}, DeformShape{.points = 0}, DeformShape{.levels = {}},
        DeformShape{.levels = {{0, 0}}}, DeformShape{.levels = {{0, 4}, {2, 2}}}}) {
    INFO(shape.text());
    DeformInputs in(shape, at::kFloat, device);
    in.value.requires_grad_();
    in.locations.requires_grad_();
    const at::Tensor output = in.attend();
    CHECK(output.sizes() ==
          at::IntArrayRef{shape.batches, shape.queries, shape.heads * shape.channels});
    if (shape.pixels() == 0 || shape.points == 0) {
      CHECK(output.eq(0).all().item<bool>());
    }
    output.sum().backward();
    CHECK(in.value.grad().sizes() == in.value.sizes());
    CHECK(in.locations.grad().isfinite().all().item<bool>());
  }
}

WARPFUSE_DEVICE_TEST("deformable attention of a level of one pixel", "[ms_deform_attn]") {
  const DeformShape shape{.queries = 40, .levels = {{1, 1}}};
  for (const at::ScalarType dtype : kDtypes) {
    const DeformInputs in(shape, dtype, device);
    CHECK(deform_mismatch(in.attend(), in) == "");
  }
}

WARPFUSE_DEVICE_TEST("deformable attention of levels of one row or column",
                     "[ms_deform_attn][portable]") {
  using Levels = std::vector<std::pair<int64_t, int64_t>>;
  for (const Levels& levels :
       {Levels{{1, 5}}, Levels{{5, 1}}, Levels{{2, 1}}, Levels{{1, 2}}, Levels{{3, 4}, {1, 1}},
        Levels{{1, 1}, {3, 4}}, Levels{{3, 4}, {6, 1}}, Levels{{6, 1}, {3, 4}},
        Levels{{1, 1}, {2, 1}, {1, 3}, {1, 1}}}) {
    for (const int64_t channels : {3, 32}) {
      const DeformShape shape{.queries = 40, .channels = channels, .levels = levels};
      INFO(shape.text());
      for (const at::ScalarType dtype : kDtypes) {
        const DeformInputs in(shape, dtype, device);
        CHECK(deform_mismatch(in.attend(), in) == "");
      }
    }
  }
}

WARPFUSE_DEVICE_TEST(
    "an infinite pixel beside a border adds nothing to points that it is no corner of",
    "[ms_deform_attn][portable]") {
  const DeformShape shape{.queries = 33, .channels = 32, .points = 3, .levels = {{4, 6}}};
  for (const at::ScalarType dtype : kDtypes) {
    DeformInputs in(shape, dtype, device);
    in.value.select(1, 7).fill_(kInf);        // row 1, column 1
    in.locations.select(-1, 0).fill_(-0.03);  // left of column 0, whose neighbour is column 1
    in.locations.select(-1, 1).fill_(0.375);  // the middle of row 1
    CHECK(deform_mismatch(in.attend(), in) == "");
    CHECK(in.attend().isfinite().all().item<bool>());
  }
}

WARPFUSE_DEVICE_TEST("locations that start between two pairs' places", "[ms_deform_attn]") {
  for (const at::ScalarType dtype : kDtypes) {
    DeformInputs in(DeformShape{}, dtype, device);
    in.locations = placed_at(1, in.locations, device);
    CHECK(deform_mismatch(in.attend(), in) == "");
  }
}

WARPFUSE_DEVICE_TEST("locations far outside, infinite and NaN add nothing",
                     "[ms_deform_attn][portable]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const double location : {-1.0, 2.0, -1e4, 6e4, kInf, -kInf, kNaN}) {
      for (const int64_t axis : {0, 1}) {
        for (const int64_t channels : {3, 32}) {
          const DeformShape shape{.channels = channels, .levels = {{7, 5}}};
          DeformInputs in(shape, dtype, device);
          in.locations.select(4, 1).select(-1, axis).fill_(location);
          const at::Tensor output = in.attend();
          in.locations = in.locations.slice(4, 0, 1);
          in.weights = in.weights.slice(4, 0, 1);
          INFO(dtype << " " << location << " " << axis);
          CHECK(deform_mismatch(output, in) == "");
        }
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("locations beyond int64", "[ms_deform_attn]") {
  for (const double location : {1e30, -1e30}) {
    DeformInputs in(DeformShape{}, at::kFloat, device);
    in.locations.fill_(location);
    CHECK(in.attend().eq(0).all().item<bool>());
  }
}

WARPFUSE_DEVICE_TEST("locations on pixels, between them and on the border",
                     "[ms_deform_attn][portable]") {
  const DeformShape shape{.batches = 1, .queries = 81, .channels = 16, .levels = {{4, 4}}};
  for (const at::ScalarType dtype : kDtypes) {
    DeformInputs in(shape, dtype, device);
    const at::Tensor steps = at::arange(-4, 5, at::kDouble) / 8 + 0.5;  // halves of pixels
    const at::Tensor grid =
        at::stack({steps.repeat_interleave(9), steps.repeat({9})}, -1).view({1, 81, 1, 1, 1, 2});
    in.locations.copy_(grid.expand_as(in.locations));
    CHECK(deform_mismatch(in.attend(), in) == "");
  }
}

WARPFUSE_DEVICE_TEST("NaN and infinity spread as in grid_sample", "[ms_deform_attn][portable]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const double special : {kNaN, kInf, -kInf}) {
      for (const int64_t channels : {3, 32}) {
        const DeformShape shape{.queries = 33, .channels = channels, .points = 3};
        INFO(dtype << " " << special << " " << channels);
        DeformInputs in(shape, dtype, device);
        in.value.select(1, 9).fill_(special);
        CHECK(deform_mismatch(in.attend(), in) == "");
        in = DeformInputs(shape, dtype, device);
        in.weights.select(1, 7).select(-1, 1).fill_(special);
        CHECK(deform_mismatch(in.attend(), in) == "");
        CHECK(deform_mismatch(in.attend_softmax(), in, true) == "");
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("an infinite weight meets a corner of weight 0", "[ms_deform_attn]") {
  const DeformShape shape{.batches = 1, .queries = 2, .heads = 1, .points = 1, .levels = {{3, 3}}};
  DeformInputs in(shape, at::kFloat, device);
  in.value.abs_().add_(1);
  in.locations.fill_(0.5);  // the middle of a pixel
  in.weights.fill_(kInf);
  CHECK(in.attend().eq(kInf).all().item<bool>());
  in.locations.fill_(3.0);  // outside: infinity times zero
  CHECK(in.attend().isnan().all().item<bool>());
}
