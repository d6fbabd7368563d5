// Gradients of fused_logprob, fused_logprob_lse and fused_logprob_entropy: the backward operator
// against its formula and against ATen, and gradients written over the logits. (Central
// differences: tests/python/test_operators.py.)

#include "support/compare.h"
#include "support/devices.h"
#include "support/errors.h"
#include "support/inputs.h"
#include "support/logprob.h"
#include "support/logprob_checks.h"
#include "support/pch.h"

namespace {

/// The backward operator against the formula, for random gradients times a factor.
void check_backward(const at::Tensor& logits, const at::Tensor& targets,
                    const LogprobArguments& arguments, double factor = 1.0) {
  INFO(describe(logits) << ", " << describe(arguments));
  const LogprobResults results = logprob_with_statistics(logits, targets, arguments);
  const LogprobGradients gradients = random_gradients(results, arguments.form);
  for (const at::Tensor& gradient : {gradients.logprob, gradients.lse, gradients.entropy}) {
    if (gradient.defined()) {
      gradient.mul_(factor);
    }
  }
  const Poison poison;
  const at::Tensor got = logprob_backward(logits, targets, results, gradients, arguments);
  CHECK(got.scalar_type() == logits.scalar_type());
  CHECK(got.is_contiguous());
  CHECK(mismatch(got, expected_logprob_backward(logits, targets, gradients, arguments)) == "");
}

}  // namespace

WARPFUSE_DEVICE_TEST("gradients follow their formulas", "[logprob][gradient]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t columns :
         {1, 2, 31, 32, 33, 127, 1000, 4097, 8200, 32'000, 50'257, 128'256, 262'145}) {
      const int64_t rows = columns > 100'000 ? 1 : columns > 10'000 ? 2 : 5;
      for (const std::string& form : kLogprobForms) {
        const at::Tensor x = random_with_outliers({rows, columns}, dtype, device);
        const at::Tensor targets = random_targets({rows}, columns, device);
        if (rows > 3) {
          targets[3].fill_(-100);
        }
        check_backward(x, targets, {.temperature = 0.7, .form = form});
      }
    }
    for (int64_t columns = 1; columns <= 130; ++columns) {
      const at::Tensor x = random_tensor({3, columns}, dtype, device);
      check_backward(x, random_targets({3}, columns, device), {.form = "entropy"});
    }
  }
}

WARPFUSE_DEVICE_TEST("masked logits have no gradient, however large those of the results",
                     "[logprob][gradient]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t columns : {5, 100, 9000}) {
      const at::Tensor x = random_tensor({5, columns}, dtype, device);
      x.select(1, 1).fill_(-kInf);
      x.select(1, columns - 1).fill_(-kInf);
      for (const std::string& form : kLogprobForms) {
        check_backward(x, at::full({5}, 2, at::TensorOptions(device).dtype(at::kLong)),
                       {.form = form}, dtype == at::kHalf ? 100.0 : 1e12);
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("gradients of logits with any strides and alignment", "[logprob][gradient]") {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const std::string& form : kLogprobForms) {
      const auto check = [&](const at::Tensor& x) {
        std::vector<int64_t> leading = x.sizes().vec();
        leading.pop_back();
        check_backward(x, random_targets(leading, x.size(-1), device, at::kInt), {.form = form});
      };
      check(random_tensor({3, 5, 320}, dtype, device).narrow(1, 0, 4).narrow(2, 0, 257));
      check(random_tensor({66, 4}, dtype, device).t());
      check(random_tensor({1, 66}, dtype, device).expand({5, 66}));
      check(random_tensor({66}, dtype, device));
      for (int64_t offset = 0; offset < 16; ++offset) {
        check(random_tensor({4, 65}, dtype, device).view(-1).narrow(0, offset, 195).view({3, 65}));
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("the target's element is rounded once", "[logprob][gradient]") {
  // 1 - p from a rounded p would lose all digits.
  const at::Tensor x = tensor_of({12.0, 0.0, 1.0}, at::kBFloat16, device).view({1, 3});
  const at::Tensor target = at::zeros({1}, at::TensorOptions(device).dtype(at::kLong));
  const LogprobResults results = logprob_with_statistics(x, target, {});
  const at::Tensor grad = logprob_backward(
      x, target, results, {.logprob = at::ones({1}, at::TensorOptions(device))}, {});
  const double rest = std::exp(-12.0) + std::exp(-11.0);
  CHECK(std::abs(grad[0][0].item<double>() / (rest / (1 + rest)) - 1.0) < 1e-2);
}

WARPFUSE_DEVICE_TEST("gradients of logprob, lse and entropy equal those of ATen",
                     "[logprob][gradient]") {
  for (const std::string& form : kLogprobForms) {
    for (const int64_t columns : {33, 5000}) {
      const at::Tensor values = random_tensor({2, 7, columns}, at::kDouble, device);
      const at::Tensor targets = random_targets({2, 7}, columns, device);
      targets[1][3].fill_(-100);
      const LogprobArguments arguments{.temperature = 1.4, .form = form};
      const at::Tensor weight = random_tensor({2, 2, 7}, at::kDouble, device);
      for (const int used : {1, 2, 3}) {  // the first result, the second, both
        const auto gradient = [&](const auto& function) {
          const at::Tensor x = values.clone().set_requires_grad(true);
          const std::vector<at::Tensor> results = function(x, targets, arguments);
          at::Tensor sum = at::zeros({}, values.options());
          for (size_t i = 0; i < results.size(); ++i) {
            if (used >> i & 1) {
              sum = sum + (results[i] * weight[static_cast<int64_t>(i)]).sum();
            }
          }
          return torch::autograd::grad({sum}, {x}, {}, std::nullopt, false,
                                       /*allow_unused=*/true)[0];
        };
        if (form == "logprob" && used != 1) {
          continue;
        }
        const auto ours = [](const auto&... in) { return logprob(in...); };
        INFO(form << ", " << columns << " columns, results " << used);
        CHECK(far_apart(gradient(ours), gradient(aten_logprob), 1e-13) == "");
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("a second differentiation is an error that says so", "[logprob][gradient]") {
  const at::Tensor x = random_tensor({3, 33}, at::kFloat, device).set_requires_grad(true);
  const at::Tensor targets = random_targets({3}, 33, device);
  for (const std::string& form : kLogprobForms) {
    const at::Tensor first = torch::autograd::grad({logprob(x, targets, {.form = form})[0].sum()},
                                                   {x}, {}, std::nullopt, /*create_graph=*/true)[0];
    CHECK(first.requires_grad());
    CHECK(error_of([&] { first.sum().backward(); }) ==
          "Error: warpfuse::_fused_logprob_backward: logits: expected one differentiation (there "
          "is no double backward), got a second");
  }
  // The form that gives statistics has the same gradient as the one that calls it.
  const auto gradient = [&](const at::Tensor& logprob) {
    return torch::autograd::grad({logprob.sum()}, {x})[0];
  };
  CHECK(bit_mismatch(gradient(logprob_with_statistics(x, targets, {}).logprob),
                     gradient(logprob(x, targets, {})[0])) == "");
}

// --- gradients written over the logits --------------------------------------------------------

WARPFUSE_DEVICE_TEST("gradients in place have the bits of those beside the logits",
                     "[logprob][gradient]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t columns : {1, 7, 33, 130, 4099, 50'257}) {
      for (const std::string& form : kLogprobForms) {
        const LogprobArguments arguments{.temperature = 0.9, .form = form};
        const at::Tensor padded = random_tensor({3, 4, columns + 15}, dtype, device);
        for (const at::Tensor& x :
             {random_tensor({3, 4, columns}, dtype, device), padded.narrow(2, 0, columns),
              padded.narrow(1, 0, 3).narrow(2, 9, columns)}) {
          INFO(describe(x) << ", " << describe(arguments));
          const at::Tensor targets = random_targets({3, x.size(1)}, columns, device);
          targets[1][1].fill_(-100);
          const LogprobResults results = logprob_with_statistics(x, targets, arguments);
          const LogprobGradients gradients = random_gradients(results, form);
          const at::Tensor expected = logprob_backward(x, targets, results, gradients, arguments);
          const at::Tensor before = padded.clone();
          logprob_backward_in_place(x, targets, results, gradients, arguments);
          CHECK(bit_mismatch(x, expected) == "");
          if (x.storage().is_alias_of(padded.storage())) {
            x.copy_(before.as_strided(x.sizes(), x.strides(), x.storage_offset()));
            CHECK(bit_mismatch(padded, before) == "");  // nothing beside the rows was written
          }
        }
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("training with the gradient in the logits' memory", "[logprob][gradient]") {
  // A head whose logits autograd knows; their gradient is handed to it in their own memory.
  const at::Tensor hidden = random_tensor({6, 8}, at::kDouble, device);
  const at::Tensor targets = random_targets({6}, 40, device);
  const at::Tensor values = random_tensor({8, 40}, at::kDouble, device, 0.5);
  const auto gradient = [&](bool in_place) {
    const at::Tensor weight = values.clone().set_requires_grad(true);
    const at::Tensor logits = at::mm(hidden, weight);
    if (!in_place) {
      return torch::autograd::grad({-warpfuse::fused_logprob(logits, targets).mean()}, {weight})[0];
    }
    const at::Tensor memory = logits.detach();
    const LogprobResults results = logprob_with_statistics(memory, targets, {});
    const at::Tensor grad = at::full({6}, -1.0 / 6, memory.options());
    logprob_backward_in_place(memory, targets, results, {.logprob = grad}, {});
    return torch::autograd::grad({logits}, {weight}, {memory})[0];
  };
  CHECK(far_apart(gradient(true), gradient(false), 1e-14) == "");
}

WARPFUSE_DEVICE_TEST("writing over logits is never behind autograd's back", "[logprob][gradient]") {
  const at::Tensor targets = random_targets({3}, 33, device);
  const at::Tensor x = random_tensor({3, 33}, at::kFloat, device).set_requires_grad(true);
  const at::Tensor logits = x * 2;
  const LogprobResults results = logprob_with_statistics(logits.detach(), targets, {});
  const LogprobGradients ones{.logprob = at::ones_like(results.logprob)};
  CHECK(error_of([&] { logprob_backward_in_place(logits, targets, results, ones, {}); }) ==
        "Error: warpfuse::_fused_logprob_backward_: logits: expected a tensor that autograd does "
        "not follow, such as logits.detach(), got one that requires a gradient");
  // Logits that a backward still needs are found changed.
  const at::Tensor loss = warpfuse::fused_logprob(logits, targets).sum();
  logprob_backward_in_place(logits.detach(), targets, results, ones, {});
  CHECK(error_of([&] { loss.backward(); }).find("modified by an inplace operation") !=
        std::string::npos);
}
