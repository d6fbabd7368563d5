// norm_linear, linear_residual and linear_argmax against a reference in float64.

#include <memory>

#include "support/compare.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/linear_call.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/poison.h"
#include "support/threads.h"

namespace {

/// Poison for the plugin's own kernels: oneDNN's allocate in a way that it does not take.
std::unique_ptr<Poison> poison_of(const LinearCall& call) {
  return is_few_rows(call) ? std::make_unique<Poison>() : nullptr;
}

void check_linear(const LinearCall& call) {
  INFO(describe(call));
  const auto poison = poison_of(call);
  const at::Tensor output = call.run();
  std::vector<int64_t> shape = call.input.sizes().vec();
  shape.back() = call.weight.size(0);
  CHECK(output.sizes() == at::IntArrayRef(shape));
  CHECK(output.scalar_type() == call.input.scalar_type());
  CHECK(output.is_contiguous());
  CHECK(mismatch(output, expected_linear(call)) == "");
}

const std::vector<std::pair<int64_t, int64_t>> kInOut = {
    {37, 19}, {8, 3}, {64, 24}, {1, 1}, {768, 2304}, {3072, 768}, {1600, 64}, {40, 8200}};

}  // namespace

WARPFUSE_DEVICE_TEST("linear layers of any size and number of rows", "[skinny_linear][portable]") {
  const std::vector<std::string> norms = {"", "layer", "rms"};
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const auto& [in, out] : kInOut) {
      if (in * out > 100'000) {  // the reference takes long: each norm with other rows
        const std::vector<int64_t> rows = {1, 9, 17};
        for (size_t i = 0; i < rows.size(); ++i) {
          check_linear(random_linear({rows[i]}, in, out, dtype, device, norms[i]));
        }
        continue;
      }
      for (const int64_t rows : {1, 2, 7, 8, 9, 15, 16, 17, 40}) {
        for (const std::string& norm : norms) {
          check_linear(random_linear({rows}, in, out, dtype, device, norm));
        }
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("activations, with each bias or without it", "[skinny_linear][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const std::string norm : {"layer", "rms"}) {
      for (const std::string activation : {"none", "gelu", "gelu_tanh"}) {
        for (const int64_t rows : {3, 17}) {
          LinearCall call = random_linear({rows}, 64, 40, dtype, device, norm);
          call.activation = activation;
          check_linear(call);
          call.bias = at::Tensor();
          check_linear(call);
          call.norm_bias = at::Tensor();
          check_linear(call);
        }
      }
    }
    LinearCall call = random_linear({2}, 64, 40, dtype, device);
    call.bias = at::Tensor();
    check_linear(call);
  }
}

WARPFUSE_DEVICE_TEST("strides and alignments of inputs and weights", "[skinny_linear][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const std::string norm : {"", "layer"}) {
      const LinearCall plain = random_linear({2, 3}, 64, 24, dtype, device, norm);
      const auto check = [&](const auto& change) {
        LinearCall call = plain;
        change(call);
        CHECK(at::equal(call.weight, plain.weight));
        check_linear(call);
      };
      const auto options = plain.weight.options();
      check([&](LinearCall& call) {  // rows of a wider tensor
        call.weight = at::full({24, 80}, kNaN, options).narrow(1, 8, 64).copy_(plain.weight);
      });
      check([&](LinearCall& call) {  // with another alignment each
        call.weight = at::full({24, 67}, kNaN, options).narrow(1, 1, 64).copy_(plain.weight);
      });
      check([&](LinearCall& call) {  // all with the same odd one
        call.weight = at::full({24 * 64 + 1}, kNaN, options)
                          .narrow(0, 1, int64_t{24} * 64)
                          .view({24, 64})
                          .copy_(plain.weight);
      });
      check([&](LinearCall& call) { call.weight = plain.weight.t().contiguous().t(); });
      check([&](LinearCall& call) {
        call.input = plain.input.permute({2, 1, 0}).contiguous().permute({2, 1, 0});
      });
      check([&](LinearCall& call) {  // an odd address
        call.input = at::full({6 * 64 + 1}, kNaN, options)
                         .narrow(0, 1, int64_t{6} * 64)
                         .view({2, 3, 64})
                         .copy_(plain.input);
      });
      check([&](LinearCall& call) {
        call.input = plain.input.select(1, 0).unsqueeze(1);
        if (call.residual.defined()) {
          call.residual = plain.residual.narrow(1, 0, 1);
        }
      });
      check([&](LinearCall& call) {
        call.bias = at::zeros({48}, options).slice(0, 0, 48, 2).copy_(plain.bias);
        if (call.residual.defined()) {
          call.residual = plain.residual.transpose(0, 1).contiguous().transpose(0, 1);
        } else {
          call.norm_weight = at::zeros({128}, options).slice(0, 0, 128, 2).copy_(plain.norm_weight);
        }
      });
    }
  }
}

WARPFUSE_DEVICE_TEST("rows whose mean is large beside their deviation",
                     "[skinny_linear][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const int64_t in : {64, 768}) {
      for (const int64_t rows : {1, 8, 16}) {
        LinearCall call = random_linear({rows}, in, 48, dtype, device, "layer");
        call.input = call.input.add(50);
        check_linear(call);
        call.input = call.input.mul(0).add(2);  // no deviation at all
        check_linear(call);
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("the residual is only read, and calls are counted", "[skinny_linear]") {
  for (const int64_t rows : {1, 17}) {
    const std::string backend = "." + backend_name(device);
    const CounterDelta residuals("linear_residual" + backend), norms("norm_linear" + backend),
        tokens("linear_argmax" + backend);
    const LinearCall call = random_linear({rows}, 64, 24, at::kFloat, device);
    const at::Tensor before = call.residual.clone();
    call.run();
    CHECK(at::equal(call.residual, before));
    random_linear({rows}, 64, 24, at::kFloat, device, "rms").run();
    call.argmax();
    CHECK(residuals() == 1);
    CHECK(norms() == 1);
    CHECK(tokens() == 1);
  }
}

WARPFUSE_DEVICE_TEST("a row's bits do not depend on the rows beside it",
                     "[skinny_linear][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const std::string norm : {"", "layer", "rms"}) {
      const LinearCall call = random_linear({8}, 768, 72, dtype, device, norm);
      const at::Tensor output = call.run();
      LinearCall other = call;
      other.input = call.input.flip({0});
      if (other.residual.defined()) {
        other.residual = call.residual.flip({0});
      }
      CHECK(bit_mismatch(other.run().flip({0}), output) == "");
    }
  }
}

WARPFUSE_DEVICE_TEST("the first of equal largest outputs", "[skinny_linear][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const auto& [in, out] : std::vector<std::pair<int64_t, int64_t>>{
             {8, 3}, {37, 19}, {64, 24}, {64, 1000}, {64, 50'257}, {768, 9000}, {8192, 12}}) {
      for (const int64_t rows : {1, 2, 7, 8, 9, 16, 17}) {
        if (in * out > 100'000 && rows % 8 != 1) {
          continue;  // their references take seconds
        }
        // Of the larger unit, outputs that are not equal are so once they are rounded.
        for (const double unit : {0.03125, 64.0}) {
          const LinearCall call = integer_linear(rows, in, out, dtype, device, unit);
          INFO(describe(call) << ", unit " << unit);
          const auto poison = poison_of(call);
          const at::Tensor tokens = call.argmax();
          CHECK(tokens.scalar_type() == at::kLong);
          CHECK(at::equal(tokens.cpu(), first_of_largest(call)));
        }
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("the largest output behind a norm", "[skinny_linear][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const std::string norm : {"layer", "rms"}) {
      for (const int64_t rows : {1, 5, 16, 17}) {
        const LinearCall call = random_linear({rows}, 64, 9000, dtype, device, norm);
        INFO(describe(call));
        const Expected expected = expected_linear(call);
        const at::Tensor tokens = call.argmax();
        const at::Tensor missing =
            expected.values.amax(-1) - expected.values.gather(-1, tokens.unsqueeze(-1)).squeeze(-1);
        const double rounding = dtype == at::kFloat ? 0 : dtype == at::kHalf ? 0x1p-10 : 0x1p-7;
        const at::Tensor allowed =
            expected.error.amax(-1) * 0x1p-23 + expected.values.amax(-1) * rounding;
        CHECK(missing.le(allowed).all().item<bool>());
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("a vocabulary that is a part of padded rows", "[skinny_linear][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const int64_t out : {25, 50'257}) {
      for (const int64_t rows : {1, 16, 17}) {
        LinearCall call = integer_linear(rows, 64, out, dtype, device);
        const at::Tensor padded = at::full({out + 47, 64}, kNaN, call.weight.options());
        call.weight = padded.narrow(0, 0, out).copy_(call.weight);
        CHECK(at::equal(call.argmax().cpu(), first_of_largest(call)));
      }
    }
  }
}

TEST_CASE("threads share the outputs of linear layers", "[skinny_linear]") {
  for (const int count : {1, 3, 16}) {
    const Threads threads(count);
    for (const at::ScalarType dtype : kInferenceDtypes) {
      for (const int64_t out : {1, 5, 1003}) {
        check_linear(random_linear({2}, 768, out, dtype, at::kCPU, "layer"));
        const LinearCall call = integer_linear(3, 768, out, dtype, at::kCPU);
        CHECK(at::equal(call.argmax(), first_of_largest(call)));
      }
    }
  }
}
