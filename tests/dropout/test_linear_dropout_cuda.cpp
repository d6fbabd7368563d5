// linear_dropout_softmax in one kernel, on GPUs that have one: the product, dropout and softmax of
// up to 128 rows, in blocks that wait for each other.

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

#include <cmath>
#include <set>

#include "support/devices.h"
#include "support/dropout.h"
#include "support/inputs.h"
#include "support/linear.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/row_engine.h"
#include "support/skip.h"

namespace {

constexpr at::ScalarType kNarrow[] = {at::kHalf, at::kBFloat16, at::kFloat};

}  // namespace

WARPFUSE_GPU_TEST("rows, columns and inner dimensions of one kernel",
                  "[dropout][linear][portable]") {
  if (skip_without_kernel()) {
    return;
  }
  const Tf32 tf32(true);
  for (const at::ScalarType dtype : kNarrow) {
    const int64_t step = 128 / static_cast<int64_t>(c10::elementSize(dtype));  // of a stage
    // Less than a step, whole steps, as many as there are stages, and many rounds over them.
    const int64_t longest = dtype == at::kFloat ? 20'000 : 8192;
    for (const int64_t inner : {int64_t{8}, step, 6 * step, 7 * step + 8, 64 * step, longest}) {
      check_layer(layer({128, inner}, 16'384, dtype, device), kP);
    }
    check_layer(layer({9, longest}, 88 * kColumns, dtype, device), kP);
    for (const int64_t rows : {2, 7, 64, 65, 127}) {
      check_layer(layer({rows, 200}, 88 * kColumns, dtype, device), kP);
    }
    // The last block's columns are not whole, or its cluster has a block with none.
    for (const int64_t columns : {99 * kColumns + 8, 101 * kColumns, 68 * kColumns + 72}) {
      check_layer(layer({33, 200}, columns, dtype, device), kP);
    }
    check_layer(layer({2, 3, 4, 200}, 100 * kColumns, dtype, device, /*has_bias=*/false), kP);
    check_layer(layer({200}, 100 * kColumns, dtype, device), kP,
                dtype == at::kFloat ? 0 : 1);  // which at::linear does not round
    for (const double p : {std::ldexp(1.0, -24), 0.999, 1.0}) {
      check_layer(layer({20, 200}, 100 * kColumns, dtype, device), p);
    }
  }
  const Layer l = layer({8, 64}, 88 * kColumns, at::kHalf, device, /*has_bias=*/false);
  const at::Tensor rng = rng_of(1, 2, device);
  CHECK(std::get<0>(linear_dropout_softmax(l.input, l.weight, at::Tensor(), kP, rng))
            .equal(std::get<0>(linear_dropout_softmax(l.input, l.weight, {}, kP, rng))));
}

WARPFUSE_GPU_TEST("inference is one kernel too", "[dropout][linear][portable]") {
  if (skip_without_kernel()) {
    return;
  }
  const Tf32 tf32(true);
  for (const at::ScalarType dtype : kNarrow) {
    const Layer l = layer({100, 512}, 90 * kColumns, dtype, device);
    const CounterDelta tiles("tier.tile");
    const at::Tensor output =
        warpfuse::linear_dropout_softmax(l.input, l.weight, l.bias, 0.5, false);
    CHECK(tiles() == 1);
    CHECK(is_near(output, at::softmax(logits_of(l), -1), 512, 1));
  }
}

WARPFUSE_GPU_TEST("TF32 by the setting of CUDA's matrix products alone",
                  "[dropout][linear][portable]") {
  const auto set = [](at::Float32Precision precision) {
    at::globalContext().setFloat32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL,
                                            precision);
  };
  set(at::Float32Precision::TF32);
  CHECK_THROWS(at::globalContext().allowTF32CuBLAS());  // the older setting says otherwise
  check_layer(layer({128, 64}, 100 * kColumns, at::kFloat, device), kP, has_kernel() ? 1 : 0);
  set(at::Float32Precision::NONE);
}

WARPFUSE_GPU_TEST("what the one kernel does not take goes to at::linear",
                  "[dropout][linear][portable]") {
  const Tf32 tf32(true);
  const int64_t columns = 88 * kColumns;
  for (const at::ScalarType dtype : {at::kHalf, at::kFloat}) {
    // at::linear rounds its result to the dtype; a double has more bits than that needs.
    const auto check = [&](const Layer& l, const at::Tensor& weight) {
      INFO(describe(l.input) << " x " << describe(weight));
      const at::Tensor rng = rng_of(3, 4, device);
      const CounterDelta tiles("tier.tile");
      const at::Tensor output =
          std::get<0>(linear_dropout_softmax(l.input, weight, l.bias, kP, rng));
      CHECK(tiles() == 0);
      const at::Tensor expected =
          at::softmax(logits_of(l) * factors_of(output.sizes(), kP, rng), -1);
      CHECK((output.to(at::kDouble) - expected).abs().max().item<double>() < 1e-2);
    };
    const Layer fits = layer({128, 64}, columns, dtype, device);
    check(fits, fits.weight.t().contiguous().t());
    for (const Layer& l :
         {layer({129, 64}, columns, dtype, device), layer({4, 4104}, 72 * kColumns, dtype, device),
          layer({4, dtype == at::kHalf ? 8200 : 32'776}, columns, dtype, device),
          layer({128, 63}, columns, dtype, device), layer({128, 64}, columns + 4, dtype, device),
          layer({128, 64}, 4096, dtype, device),
          layer({128, 64}, 133 * kColumns + 8, dtype, device)}) {
      check(l, l.weight);
    }
    // A weight that starts off 16 bytes.
    const at::Tensor behind = at::empty({columns * 64 + 1}, fits.weight.options());
    const at::Tensor off = behind.narrow(0, 1, columns * 64).view({columns, 64});
    off.copy_(fits.weight);
    check(fits, off);
    const TuningInUse little(library_tuning() + "limit shared_bytes 101376\n");
    check(fits, fits.weight);
  }
  const Tf32 exact(false);
  const Layer l = layer({128, 64}, columns, at::kFloat, device);
  const CounterDelta tiles("tier.tile");
  linear_dropout_softmax(l.input, l.weight, l.bias, kP);
  linear_dropout_softmax(l.input.to(at::kDouble), l.weight.to(at::kDouble), {}, kP);
  CHECK(tiles() == 0);
}

WARPFUSE_GPU_TEST("NaN and infinities in one kernel", "[dropout][linear][portable]") {
  if (skip_without_kernel()) {
    return;
  }
  const Tf32 tf32(true);
  for (const at::ScalarType dtype : kNarrow) {
    const int64_t columns = 80 * kColumns;
    Layer l = layer({8, 64}, columns, dtype, device);
    l.weight[5000][3] = 0.0;
    l.input[1][3] = kNaN;                     // a row of NaN
    l.input[2][3] = kInf;                     // times 0: NaN in one column, infinities in others
    l.bias->slice(0, 256, 640).fill_(-kInf);  // blocks of nothing but minus infinity
    l.bias->slice(0, 0, 64).fill_(-kInf);
    const at::Tensor rng = rng_of(11, 16, device);
    // Nothing is dropped: minus infinity times 0 were NaN in all rows.
    const auto [output, used] = linear_dropout_softmax(l.input, l.weight, l.bias, 0.0, rng);
    const at::Tensor expected = at::softmax(logits_of(l), -1);
    for (const int64_t row : {0, 3, 7}) {
      CHECK(is_near(output[row], expected[row], 64));
      CHECK(output[row].slice(0, 256, 640).eq(0).all().item<bool>());
    }
    for (const int64_t row : {1, 2}) {
      CHECK(output[row].isnan().all().item<bool>());
    }
    l.bias->fill_(-kInf);
    CHECK(std::get<0>(linear_dropout_softmax(l.input, l.weight, l.bias, 0.0, rng))
              .isnan()
              .all()
              .item<bool>());
    // What is dropped is multiplied by 0.
    CHECK(std::get<0>(linear_dropout_softmax(l.input, l.weight, l.bias, 0.5, rng))
              .isnan()
              .all()
              .item<bool>());
  }
}

WARPFUSE_GPU_TEST("gradients behind one kernel", "[dropout][linear][portable]") {
  if (skip_without_kernel()) {
    return;
  }
  const Tf32 tf32(true);
  const Layer l = layer({100, 72}, 72 * kColumns, at::kFloat, device);
  const std::vector<at::Tensor> leaves = {l.input.clone().set_requires_grad(true),
                                          l.weight.clone().set_requires_grad(true),
                                          l.bias->clone().set_requires_grad(true)};
  const at::Tensor rng = rng_of(5, 8, device);
  const CounterDelta tiles("tier.tile");
  const at::Tensor output =
      std::get<0>(linear_dropout_softmax(leaves[0], leaves[1], leaves[2], kP, rng));
  CHECK(tiles() == 1);
  std::vector<at::Tensor> doubles;
  for (const at::Tensor& leaf : leaves) {
    doubles.push_back(in_double(leaf).set_requires_grad(true));
  }
  const at::Tensor expected = at::softmax(
      at::linear(doubles[0], doubles[1], doubles[2]) * factors_of(output.sizes(), kP, rng), -1);
  const at::Tensor grad = random_tensor(output.sizes(), at::kFloat, device);
  const auto got = torch::autograd::grad({output}, leaves, {grad});
  const auto exact = torch::autograd::grad({expected}, doubles, {grad.to(at::kDouble)});
  for (size_t i = 0; i < got.size(); ++i) {
    INFO(i);
    const auto largest = exact[i].abs().max().item<double>();
    CHECK((got[i].to(at::kDouble) - exact[i]).abs().max().item<double>() < 2e-3 * largest);
  }
}

WARPFUSE_GPU_TEST("one kernel on several streams, and in a graph", "[dropout][linear][portable]") {
  if (skip_without_kernel()) {
    return;
  }
  const Layer l = layer({128, 512}, 16'384, at::kBFloat16, device);
  const at::Tensor logits = logits_of(l);
  const auto check = [&](const std::tuple<at::Tensor, at::Tensor>& result) {
    const auto& [output, rng] = result;
    CHECK(is_near(output, at::softmax(logits * factors_of(logits.sizes(), kP, rng), -1), 512));
  };
  const auto call = [&] { return linear_dropout_softmax(l.input, l.weight, l.bias, kP); };
  std::vector<std::tuple<at::Tensor, at::Tensor>> results;
  at::cuda::getCurrentCUDAStream().synchronize();
  for (int i = 0; i < 24; ++i) {
    const c10::cuda::CUDAStreamGuard stream(at::cuda::getStreamFromPool(i % 2 == 0));
    results.push_back(call());
  }
  c10::cuda::device_synchronize();
  for (const auto& result : results) {
    check(result);
  }

  const c10::cuda::CUDAStreamGuard stream(at::cuda::getStreamFromPool());
  call();
  at::cuda::CUDAGraph graph;
  graph.capture_begin();
  const auto first = call(), second = call();
  graph.capture_end();
  std::set<std::pair<int64_t, int64_t>> seen;
  for (int replay = 0; replay < 3; ++replay) {
    graph.replay();
    for (const auto& result : {first, second}) {
      check(result);
      const at::Tensor& rng = std::get<1>(result);
      seen.emplace(rng[0].item<int64_t>(), rng[1].item<int64_t>());
    }
  }
  CHECK(seen.size() == 6);
}

WARPFUSE_GPU_TEST("there is no memory for logits beside the output",
                  "[dropout][linear][portable]") {
  const auto check = [&](const Layer& l) {
    const int64_t output = l.input.size(0) * l.weight.size(0) * l.input.element_size();
    for (const bool training : {true, false}) {
      const int64_t ours = peak_bytes(device, [&] {
        return warpfuse::linear_dropout_softmax(l.input, l.weight, l.bias, kP, training);
      });
      CHECK(ours >= output);
      CHECK(ours <= output + (output / 16));
    }
  };
  const Tf32 exact(false);
  check(layer({512, 64}, 16'384, at::kFloat, device));  // at::linear's result becomes the output
  if (!skip_without_kernel()) {
    check(layer({128, 64}, 16'384, at::kBFloat16, device));
  }
}
