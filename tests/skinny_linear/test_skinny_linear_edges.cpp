// norm_linear, linear_residual and linear_argmax: empty tensors, NaN and infinities, gradients,
// autocast. (Meta: tests/python/test_operators.py.)

#include "support/autocast.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/errors.h"
#include "support/inputs.h"
#include "support/linear_call.h"
#include "support/operators.h"
#include "support/pch.h"

namespace {

using TokenList = std::vector<int64_t>;

TokenList tokens_of(const LinearCall& call) {
  const at::Tensor tokens = call.argmax().cpu();
  const auto* first = tokens.const_data_ptr<int64_t>();
  return {first, first + tokens.numel()};
}

/// Outputs that are these values, for each of `rows` rows.
LinearCall with_outputs(const std::vector<double>& values, int64_t rows, at::ScalarType dtype,
                        const at::Device& device) {
  const auto options = at::TensorOptions(device).dtype(dtype);
  return {.input = at::zeros({rows, 8}, options),
          .weight = at::zeros({static_cast<int64_t>(values.size()), 8}, options),
          .bias = tensor_of(values, dtype, device)};
}

}  // namespace

WARPFUSE_DEVICE_TEST("linear layers of nothing", "[skinny_linear]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const std::string norm : {"", "layer"}) {
      CHECK(random_linear({0}, 8, 5, dtype, device, norm).run().sizes() == at::IntArrayRef({0, 5}));
      CHECK(random_linear({2, 0}, 8, 5, dtype, device, norm).run().sizes() ==
            at::IntArrayRef({2, 0, 5}));
      CHECK(random_linear({2}, 8, 0, dtype, device, norm).run().sizes() == at::IntArrayRef({2, 0}));
    }
    const LinearCall empty = random_linear({2, 0}, 8, 5, dtype, device);
    CHECK(empty.argmax().sizes() == at::IntArrayRef({2, 0}));
    CHECK(random_linear({0}, 8, 5, dtype, device).argmax().sizes() == at::IntArrayRef{0});
    // Without columns a product is 0.
    LinearCall no_columns = random_linear({2}, 4, 5, dtype, device);
    no_columns.input = no_columns.input.narrow(1, 0, 0);
    no_columns.weight = no_columns.weight.narrow(1, 0, 0);
    CHECK(mismatch(no_columns.run(),
                   {(no_columns.residual.to(at::kDouble) + no_columns.bias.to(at::kDouble)),
                    at::full({2, 5}, 3e5, at::TensorOptions(device).dtype(at::kDouble))}) == "");
  }
}

WARPFUSE_DEVICE_TEST("an input of one dimension is one row", "[skinny_linear]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    const LinearCall call = random_linear({}, 64, 24, dtype, device, "layer");
    CHECK(call.run().sizes() == at::IntArrayRef{24});
    CHECK(mismatch(call.run(), expected_linear(call)) == "");
    CHECK(call.argmax().dim() == 0);
  }
}

WARPFUSE_DEVICE_TEST("NaN and infinities stay in their rows", "[skinny_linear][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const std::string norm : {"", "layer", "rms"}) {
      for (const int64_t rows : {4, 9, 17}) {
        for (const double value : {kNaN, kInf, -kInf}) {
          const LinearCall call = random_linear({rows}, 64, 24, dtype, device, norm);
          const at::Tensor before = call.run();
          call.input[2][13].fill_(value);
          INFO(describe(call) << ", " << value);
          const at::Tensor output = call.run();
          CHECK_FALSE(at::isfinite(output[2]).any().item<bool>());
          CHECK(at::equal(output.narrow(0, 0, 2), before.narrow(0, 0, 2)));
          CHECK(at::equal(output.narrow(0, 3, rows - 3), before.narrow(0, 3, rows - 3)));
          if (!norm.empty() || std::isnan(value)) {
            CHECK(at::isnan(output[2]).all().item<bool>());
          }
        }
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("a NaN weight is in its output alone", "[skinny_linear][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const std::string norm : {"", "layer", "rms"}) {
      const LinearCall call = random_linear({3}, 64, 24, dtype, device, norm);
      const at::Tensor before = call.run();
      call.weight[5][60].fill_(kNaN);
      const at::Tensor output = call.run();
      CHECK(at::isnan(output.select(1, 5)).all().item<bool>());
      CHECK(at::equal(output.narrow(1, 0, 5), before.narrow(1, 0, 5)));
      CHECK(at::equal(output.narrow(1, 6, 18), before.narrow(1, 6, 18)));
    }
  }
}

WARPFUSE_DEVICE_TEST("rows of logits that have no largest one", "[skinny_linear][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const int64_t rows : {1, 9, 17}) {
      const auto tokens = [&](const std::vector<double>& values) {
        const TokenList found = tokens_of(with_outputs(values, rows, dtype, device));
        CHECK(std::ranges::count(found, found[0]) == rows);
        return found[0];
      };
      CHECK(tokens({1, 3, 2, 3}) == 1);
      CHECK(tokens({-kInf, -5, -kInf}) == 1);
      CHECK(tokens({-kInf, -kInf}) == -1);
      CHECK(tokens({1, kNaN, 3}) == -1);
      CHECK(tokens({1, kInf, -kNaN, kInf}) == -1);
      CHECK(tokens({kNaN}) == -1);
      CHECK(tokens({1, kInf, 3, kInf}) == 1);
      CHECK(tokens({-0.0, 0.0}) == 0);
      CHECK(tokens({0.0, -0.0}) == 0);
      CHECK(tokens({-finfo_max(dtype), -kInf}) == 0);
      // The wide kernel, with the value in any part of it.
      std::vector<double> many(9001, -2);
      CHECK(tokens(many) == 0);
      many[8999] = -1;
      CHECK(tokens(many) == 8999);
      many[4000] = kNaN;
      CHECK(tokens(many) == -1);
      CHECK(tokens(std::vector<double>(9001, -kInf)) == -1);
    }
  }
}

WARPFUSE_DEVICE_TEST("a row with NaN leaves the tokens of others", "[skinny_linear][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const int64_t out : {24, 9000}) {
      LinearCall call = random_linear({6}, 64, out, dtype, device);
      const TokenList before = tokens_of(call);
      call.input[3][0].fill_(kNaN);
      TokenList expected = before;
      expected[3] = -1;
      CHECK(tokens_of(call) == expected);
    }
  }
}

WARPFUSE_DEVICE_TEST("linear layers for inference have no gradient", "[skinny_linear]") {
  for (const std::string norm : {"", "layer"}) {
    LinearCall call = random_linear({2}, 64, 24, at::kFloat, device, norm);
    call.weight.set_requires_grad(true);
    const at::Tensor output = call.run();
    const std::string error = error_of([&] { output.sum().backward(); });
    INFO(error);
    CHECK(error.find(norm.empty() ? "warpfuse::linear_residual" : "warpfuse::norm_linear") !=
          std::string::npos);
    CHECK_FALSE(call.argmax().requires_grad());
  }
}

WARPFUSE_DEVICE_TEST("autocast gives all tensors of a linear layer its dtype",
                     "[autocast][skinny_linear]") {
  for (const at::ScalarType cast : {at::kBFloat16, at::kHalf}) {
    for (const std::string norm : {"", "layer", "rms"}) {
      const LinearCall call = random_linear({3}, 64, 24, at::kFloat, device, norm);
      LinearCall rounded = call, mixed = call;
      for (at::Tensor LinearCall::* member :
           {&LinearCall::input, &LinearCall::weight, &LinearCall::bias, &LinearCall::norm_weight,
            &LinearCall::norm_bias, &LinearCall::residual}) {
        at::Tensor& tensor = rounded.*member;
        tensor = tensor.defined() ? tensor.to(cast) : tensor;
      }
      mixed.input = rounded.input;  // as a linear layer before it gives
      const at::Tensor expected = rounded.run(), tokens = rounded.argmax();
      CHECK(error_of([&] { mixed.run(); }).find("weight: expected") != std::string::npos);
      const Autocast autocast(device.type(), cast);
      for (const LinearCall& each : {call, mixed, rounded}) {
        const at::Tensor output = each.run();
        CHECK(output.scalar_type() == cast);
        CHECK(output.equal(expected));
        CHECK(each.argmax().equal(tokens));
      }
    }
  }
}
