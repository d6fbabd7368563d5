// fused_logprob, fused_logprob_lse and fused_logprob_entropy against references in long double.

#include "support/compare.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/logprob.h"
#include "support/logprob_checks.h"
#include "support/pch.h"

WARPFUSE_DEVICE_TEST("vocabularies of every size and dtype", "[logprob][portable]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t columns : {1, 2, 31, 32, 33, 1000, 32'000, 50'257, 128'256, 262'145}) {
      const int64_t rows = columns > 100'000 ? 2 : columns > 1000 ? 3 : 7;
      const at::Tensor x = random_with_outliers({rows, columns}, dtype, device);
      for (const std::string& form : kLogprobForms) {
        check_logprob(x, random_targets({rows}, columns, device), {.form = form});
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("rows of every length from 1 to 300", "[logprob][portable]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (int64_t columns = 1; columns <= 300; ++columns) {
      const at::Tensor x = random_with_outliers({3, columns}, dtype, device);
      check_logprob(x, random_targets({3}, columns, device), {.form = "entropy"});
    }
  }
}

WARPFUSE_DEVICE_TEST("leading dimensions and targets of both dtypes, with any strides",
                     "[logprob][portable]") {
  for (const std::vector<int64_t>& leading :
       std::vector<std::vector<int64_t>>{{}, {1}, {5}, {2, 3}, {2, 1, 3}, {2, 3, 1, 2}}) {
    std::vector<int64_t> shape = leading;
    shape.push_back(130);
    for (const at::ScalarType index : {at::kInt, at::kLong}) {
      for (const std::string& form : kLogprobForms) {
        const at::Tensor x = random_tensor(shape, at::kFloat, device);
        check_logprob(x, random_targets(leading, 130, device, index), {.form = form});
      }
    }
  }
  const at::Tensor x = random_tensor({4, 6, 130}, at::kHalf, device);
  for (const at::ScalarType index : {at::kInt, at::kLong}) {
    check_logprob(x, random_targets({6, 4}, 130, device, index).t(), {});
    check_logprob(x, random_targets({4, 12}, 130, device, index).slice(1, 1, 12, 2), {});
    check_logprob(x, random_targets({1, 6}, 130, device, index).expand({4, 6}), {});
    check_logprob(x, random_targets({4, 1}, 130, device, index).expand({4, 6}), {});
  }
}

WARPFUSE_DEVICE_TEST("logits with any strides and alignment", "[logprob][portable]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const std::string& form : kLogprobForms) {
      const LogprobArguments arguments{.form = form};
      const auto check = [&](const at::Tensor& x) {
        std::vector<int64_t> leading = x.sizes().vec();
        leading.pop_back();
        check_logprob(x, random_targets(leading, x.size(-1), device), arguments);
      };
      // A head padded to a multiple of 64, the last position of every sequence left out, and both.
      check(random_tensor({2, 5, 1088}, dtype, device).narrow(2, 0, 1057));
      check(random_tensor({3, 5, 257}, dtype, device).narrow(1, 0, 4));
      check(random_tensor({3, 5, 320}, dtype, device).narrow(1, 0, 4).narrow(2, 0, 257));
      check(random_tensor({2, 3, 4, 66}, dtype, device).narrow(1, 0, 2));
      // These need a copy: three strides, columns that do not lie side by side.
      check(random_tensor({3, 4, 5, 66}, dtype, device).narrow(1, 0, 3).narrow(2, 1, 3));
      check(random_tensor({66, 4}, dtype, device).t());
      check(random_tensor({4, 132}, dtype, device).slice(1, 0, 132, 2));
      check(random_tensor({5, 4, 66}, dtype, device).transpose(0, 1));
      check(random_tensor({1, 66}, dtype, device).expand({5, 66}));
      check(random_tensor({5, 1}, dtype, device).expand({5, 66}));
      for (int64_t offset = 0; offset < 16; ++offset) {
        check(random_tensor({3 * 65 + 16}, dtype, device).narrow(0, offset, 3 * 65).view({3, 65}));
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("logits that fit two strides are not copied", "[logprob][memory][portable]") {
  // Their rows are found by strides alone: everything between them is NaN.
  const at::Tensor padded = at::full({3, 5, 1088}, kNaN, at::TensorOptions(device));
  const at::Tensor x = padded.narrow(1, 0, 4).narrow(2, 0, 1057);
  x.copy_(random_tensor({3, 4, 1057}, at::kFloat, device));
  const at::Tensor targets = random_targets({3, 4}, 1057, device);
  for (const std::string& form : kLogprobForms) {
    const LogprobArguments arguments{.form = form};
    const auto got = logprob(x, targets, arguments);
    const auto expected = logprob(x.contiguous(), targets, arguments);
    for (size_t i = 0; i < got.size(); ++i) {
      CHECK(bit_mismatch(got[i], expected[i]) == "");
    }
  }
}

WARPFUSE_DEVICE_TEST("temperatures and large logits", "[logprob][portable]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t columns : {33, 5000}) {
      for (const double temperature : {0.25, 0.7, 1.0, 1.3, 100.0, 1e-3, 1e-6, 1e6}) {
        for (const double offset : {0.0, 1e4, -1e4}) {
          const at::Tensor x =
              (random_tensor({4, columns}, at::kDouble) + offset).to(dtype).to(device);
          for (const std::string& form : kLogprobForms) {
            check_logprob(x, random_targets({4}, columns, device),
                          {.temperature = temperature, .form = form});
          }
        }
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("a log-probability near zero keeps its value beside large logits",
                     "[logprob][portable]") {
  // y - lse would round both to multiples of 1e-3.
  const at::Tensor x = tensor_of({10'000.0, 9'990.0, 9'985.0}, at::kFloat, device).view({1, 3});
  const auto got =
      warpfuse::fused_logprob(x, at::zeros({1}, at::TensorOptions(device).dtype(at::kLong)));
  const double exact = -std::log1p(std::exp(-10.0) + std::exp(-15.0));
  CHECK(std::abs(got.item<double>() - exact) < 1.5e-7);
}

WARPFUSE_DEVICE_TEST("shards merged by their lse equal the whole", "[logprob][portable]") {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    for (const auto& [columns, first] :
         std::vector<std::pair<int64_t, int64_t>>{{2, 1}, {100, 33}, {50'257, 25'000}}) {
      const at::Tensor x = random_tensor({9, columns}, dtype, device);
      const at::Tensor targets = random_targets({9}, columns, device);
      targets[4].fill_(-100);
      const LogprobArguments whole{.temperature = 0.8, .form = "lse"};
      std::vector<at::Tensor> logprobs;
      std::vector<at::Tensor> lses;
      for (const auto& [start, count] :
           std::vector<std::pair<int64_t, int64_t>>{{0, first}, {first, columns - first}}) {
        LogprobArguments part = whole;
        part.vocab_start = start;
        const at::Tensor shard = x.narrow(1, start, count);
        check_logprob(shard, targets, part);
        const auto results = logprob(shard, targets, part);
        logprobs.push_back(results[0]);
        lses.push_back(results[1]);
      }
      const at::Tensor lse = at::logsumexp(at::stack(lses), 0);
      const at::Tensor merged =
          at::maximum(logprobs[0] + lses[0] - lse, logprobs[1] + lses[1] - lse);
      const auto expected = logprob(x, targets, whole);
      CHECK(aten_mismatch(lse, expected[1], 4e-6) == "");
      const at::Tensor counts = targets.ne(-100);
      CHECK(aten_mismatch(merged.masked_select(counts), expected[0].masked_select(counts), 4e-6) ==
            "");
    }
  }
}
