// dropout_softmax and softmax_dropout, and linear_dropout_softmax in what they share: results and
// gradients against a reference in float64 with the same mask; what is drawn when; edges.

#include <cmath>

#include "support/compare.h"
#include "support/devices.h"
#include "support/dropout_checks.h"
#include "support/inputs.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/row_functions.h"

namespace {

/// The public operator of an order.
at::Tensor drop(const at::Tensor& x, const DropoutCall& call, bool training = true) {
  return call.softmax_first ? warpfuse::softmax_dropout(x, call.dim, call.p, training)
                            : warpfuse::dropout_softmax(x, call.dim, call.p, training);
}

}  // namespace

WARPFUSE_DEVICE_TEST("values and gradients of every length and dtype", "[dropout][portable]") {
  for (const DropoutCall& order : kOrders) {
    for (const at::ScalarType dtype : kDtypes) {
      for (int64_t columns = 2; columns <= 140; columns += columns < 40 ? 1 : 7) {
        check_dropout(random_tensor({5, columns}, dtype, device), with(order, 1, 0.3));
      }
      for (const int64_t columns : {255, 1024, 1025, 4099, 16384, 50'257, 140'000}) {
        check_dropout(random_tensor({2, columns}, dtype, device), with(order, 1, 0.2));
      }
      check_dropout(random_tensor({67, 513}, dtype, device), with(order, -1, 0.5));
    }
  }
}

WARPFUSE_DEVICE_TEST("along any dimension, with any strides and alignment", "[dropout][portable]") {
  for (const DropoutCall& order : kOrders) {
    for (const at::ScalarType dtype : kDtypes) {
      for (const int64_t dim : {0, 1, 2, -1}) {
        check_dropout(random_tensor({3, 33, 5}, dtype, device), with(order, dim, 0.3));
        check_dropout(random_tensor({7, 4, 130}, dtype, device), with(order, dim, 0.3));
        check_dropout(random_tensor({5, 33, 6}, dtype, device).transpose(0, 2),
                      with(order, dim, 0.3));
        check_dropout(random_tensor({6, 33, 5}, dtype, device).slice(0, 0, 6, 2),
                      with(order, dim, 0.3));
      }
      check_dropout(random_tensor({2, 300, 1}, dtype, device), with(order, 1, 0.3));
      for (const int64_t offset : {1, 3, 5}) {
        check_dropout(random_at(offset, {3, 1000}, dtype, device), with(order, -1, 0.3));
        check_dropout(random_at(offset, {3, 1003}, dtype, device), with(order, -1, 0.3));
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("softmax_dropout rounds once along any dimension", "[dropout][portable]") {
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    for (const auto& shape :
         std::vector<std::vector<int64_t>>{{3, 33, 5}, {7, 40, 136}, {300, 4, 64}}) {
      for (const int64_t dim : {0, 1, 2}) {
        check_rounded_once(shape, dim, dtype, device);
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("what is dropped is 0 where what is kept overflows", "[dropout][portable]") {
  // 131072 times a probability above 1/2 is past float16's end.
  const DropoutCall call{.p = 1 - std::ldexp(1.0, -17), .softmax_first = true};
  const at::Tensor rng = rng_of(7, 8, device);
  for (const at::ScalarType dtype : kDtypes) {
    at::Tensor x = at::zeros({40, 300}, at::TensorOptions(device).dtype(dtype));
    x.select(0, 5).fill_(30.0);
    x.select(1, 7).fill_(60.0);
    x[11][13].fill_(kNaN);
    const at::Tensor dropped = plain_factors(x.sizes(), call.p, rng).eq(0).to(device);
    for (const int64_t dim : {0, 1}) {
      INFO(c10::toString(dtype) << " over dim " << dim);
      const auto output = std::get<0>(dropout_softmax(x, with(call, dim, call.p), rng));
      const at::Tensor nan = at::isnan(at::softmax(x, dim));
      CHECK(at::isnan(output).equal(nan));
      CHECK(output.masked_select(dropped.logical_and(~nan)).eq(0).all().item<bool>());
    }
  }
}

TEST_CASE("rows in one pass, other dimensions in two", "[dropout][counters]") {
  const at::Tensor x = random_tensor({3, 33}, at::kFloat);
  const CounterDelta rows("cpu.dropout_rows"), columns("cpu.dropout_column");
  dropout_softmax(x, {.dim = 1});
  CHECK(rows() == 1);
  CHECK(columns() == 0);
  dropout_softmax(x, {.dim = 0});
  CHECK(rows() == 1);
  CHECK(columns() == 1);
}

WARPFUSE_DEVICE_TEST("without training, or with p = 0, it is softmax and nothing is drawn",
                     "[dropout][portable]") {
  const at::Tensor x = random_tensor({5, 333}, at::kFloat, device);
  const at::Tensor weight = random_tensor({333, 333}, at::kFloat, device, 0.1);
  const at::Tensor bias = random_tensor({333}, at::kFloat, device);
  const CounterDelta calls("dropout_softmax." + backend_name(device));
  for (const auto& [p, training] : std::vector<std::pair<double, bool>>{
           {0.5, false}, {1.0, false}, {0.0, true}, {0.0, false}}) {
    at::manual_seed(5);
    const at::Tensor undisturbed = at::rand({4}, at::TensorOptions(device));
    at::manual_seed(5);
    for (const DropoutCall& order : kOrders) {
      for (const int64_t dim : {0, 1}) {
        // Public code that scales by 1 / (1 - p) in evaluation would be off by a factor of 2.
        CHECK(bit_mismatch(drop(x, with(order, dim, p), training), warpfuse::softmax(x, dim)) ==
              "");
      }
    }
    CHECK(bit_mismatch(warpfuse::linear_dropout_softmax(x, weight, bias, p, training),
                       warpfuse::softmax(at::linear(x, weight, bias), 1)) == "");
    CHECK(at::rand({4}, at::TensorOptions(device)).equal(undisturbed));
  }
  CHECK(calls() == 0);
  // The private operator has no random numbers to return then, but those that it was given.
  CHECK(std::get<1>(linear_dropout_softmax(x, weight, bias, 0.0)).sizes() == at::IntArrayRef({0}));
  const at::Tensor rng = rng_of(5, 8, device);
  CHECK(std::get<1>(linear_dropout_softmax(x, weight, bias, 0.0, rng)).equal(rng));
}

WARPFUSE_DEVICE_TEST("p = 1 is as in ATen", "[dropout][portable]") {
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor x = random_tensor({5, 33}, dtype, device).set_requires_grad(true);
    for (const int64_t dim : {0, 1}) {
      const at::Tensor first = drop(x, {.dim = dim, .p = 1.0});
      CHECK(aten_mismatch(first, at::softmax(at::dropout(x, 1.0, true), dim)) == "");
      const at::Tensor last = drop(x, {.dim = dim, .p = 1.0, .softmax_first = true});
      CHECK(bit_mismatch(last, at::dropout(at::softmax(x, dim), 1.0, true)) == "");
      for (const at::Tensor& output : {first, last}) {
        const at::Tensor grad = torch::autograd::grad({output}, {x}, {at::ones_like(output)})[0];
        CHECK(grad.eq(0).all().item<bool>());
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("the default arguments drop half, in training", "[dropout][portable]") {
  const at::Tensor ones = at::ones({4, 10'000}, at::TensorOptions(device));
  static const auto op =
      warpfuse::detail::find_operator<at::Tensor(const at::Tensor&, int64_t, double, bool)>(
          "warpfuse::softmax_dropout");
  CHECK(op.schema().arguments()[2].default_value()->toDouble() == 0.5);
  const auto share =
      (warpfuse::softmax_dropout(ones, 1) != 0).to(at::kDouble).mean().item<double>();
  CHECK(std::abs(share - 0.5) < 5 * 0.5 / 200);
}

WARPFUSE_DEVICE_TEST("the expectation of what comes out of softmax_dropout is softmax",
                     "[dropout][random-numbers][portable]") {
  const at::Tensor x = random_tensor({1, 64}, at::kDouble, device, 1.0);
  constexpr int64_t kCalls = 40'000;
  const double p = 0.3;
  const at::Tensor many = warpfuse::softmax_dropout(x.expand({kCalls, 64}), 1, p);
  const at::Tensor softmax = at::softmax(x, 1);
  const at::Tensor deviation = softmax * std::sqrt(p / (1 - p) / kCalls);
  CHECK(((many.mean(0, true) - softmax).abs() < 5 * deviation).all().item<bool>());
}

WARPFUSE_DEVICE_TEST("empty tensors and single elements", "[dropout][portable]") {
  const auto options = at::TensorOptions(device);
  for (const DropoutCall& order : kOrders) {
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{0, 3}, {3, 0}, {0}, {2, 0, 3}}) {
      const at::Tensor x = at::empty(shape, options).set_requires_grad(true);
      for (int64_t dim = 0; dim < x.dim(); ++dim) {
        const at::Tensor output = drop(x, with(order, dim, 0.5));
        CHECK(output.sizes() == x.sizes());
        const at::Tensor grad = torch::autograd::grad({output}, {x}, {at::ones_like(output)})[0];
        CHECK(grad.sizes() == x.sizes());
      }
    }
    const at::Tensor rng = rng_of(5, 6, device);
    CHECK(std::get<2>(dropout_softmax(at::empty({0, 3}, options), order, rng)).equal(rng));
    CHECK(drop(at::ones({}, options), with(order, 0, 0.5)).dim() == 0);
    CHECK(drop(at::ones({7, 1}, options), with({}, 1, 0.5)).eq(1).all().item<bool>());
  }
  CHECK(warpfuse::linear_dropout_softmax(at::empty({0, 4}, options), at::ones({5, 4}, options))
            .sizes() == at::IntArrayRef({0, 5}));
}

WARPFUSE_DEVICE_TEST("NaN and infinities are as in ATen's chain", "[dropout][portable]") {
  // What is dropped is multiplied by 0, so that an infinity becomes NaN.
  const double p = 0.5;
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    const at::Tensor rng = rng_of(11, 16, device);
    at::Tensor x = random_tensor({6, 40}, dtype, device);
    x[0][3] = kNaN;
    x[1][4] = kInf;
    x[2][5] = -kInf;
    x[3].fill_(-kInf);
    x[4].fill_(finfo_max(dtype));
    const at::Tensor factors = plain_factors({6, 40}, p, rng).to(device, dtype);
    CHECK(aten_mismatch(std::get<0>(dropout_softmax(x, {.dim = 1, .p = p}, rng)),
                        at::softmax(x * factors, 1)) == "");
    CHECK(aten_mismatch(
              std::get<0>(dropout_softmax(x, {.dim = 1, .p = p, .softmax_first = true}, rng)),
              at::softmax(x, 1) * factors) == "");
  }
}
