// fused_logprob at its edges: targets that are ignored, wrong or another shard's, rows with
// infinities and NaN as ATen has them, and empty tensors.

#include "support/compare.h"
#include "support/devices.h"
#include "support/errors.h"
#include "support/inputs.h"
#include "support/logprob.h"
#include "support/logprob_checks.h"
#include "support/pch.h"

namespace {

/// The result and the gradient of its sum.
struct Differentiated {
  std::vector<at::Tensor> results;
  at::Tensor gradient;
};

template <typename Function>
Differentiated differentiate(const Function& function, const at::Tensor& logits, size_t result) {
  const at::Tensor x = logits.clone().set_requires_grad(true);
  const std::vector<at::Tensor> results = function(x);
  return {results, torch::autograd::grad({results[result].sum()}, {x})[0]};
}

at::Tensor targets_of(const std::vector<int64_t>& values, const at::Device& device,
                      at::ScalarType dtype = at::kLong) {
  return at::tensor(values, at::kLong).to(dtype).to(device);
}

}  // namespace

WARPFUSE_DEVICE_TEST("rows with infinities and NaN give what log_softmax and gather give",
                     "[logprob]") {
  // One special element, two, or a whole row, at either end of a row and past the first part.
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    for (const int64_t columns : {2, 33, 9000}) {
      std::vector<at::Tensor> rows;
      for (const double first : {-kInf, kInf, kNaN, 0.5}) {
        for (const double second : {-kInf, kInf, kNaN, -0.5}) {
          const at::Tensor row = random_tensor({columns}, dtype);
          row[0].fill_(first);
          row[columns - 1].fill_(second);
          rows.push_back(row);
        }
      }
      for (const double all : {-kInf, kInf, kNaN}) {
        rows.push_back(at::full({columns}, all, dtype));
      }
      rows.push_back(at::full({columns}, -kInf, dtype));
      rows.back()[columns / 2].fill_(3.0);
      const at::Tensor x = at::stack(rows).to(device);
      for (const int64_t column : {int64_t{0}, columns / 2, columns - 1}) {
        const at::Tensor targets =
            at::full({x.size(0)}, column, at::TensorOptions(device).dtype(at::kLong));
        for (const std::string& form : kLogprobForms) {
          INFO(form << " of column " << column << " of " << columns);
          const LogprobArguments arguments{.form = form};
          const auto ours = differentiate(
              [&](const at::Tensor& in) { return logprob(in, targets, arguments); }, x, 0);
          const auto aten = differentiate(
              [&](const at::Tensor& in) { return aten_logprob(in, targets, arguments); }, x, 0);
          CHECK(aten_mismatch(ours.results[0], aten.results[0], 4e-6) == "");
          CHECK(aten_mismatch(ours.gradient, aten.gradient, 4e-6) == "");
          if (form == "lse") {
            CHECK(aten_mismatch(ours.results[1], aten.results[1], 4e-6) == "");
          }
        }
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("a masked vocabulary", "[logprob]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t columns : {64, 20'000}) {
      at::Tensor x = random_tensor({5, columns}, dtype, device);
      x = x.masked_fill(at::rand({5, columns}).lt(0.7).to(device), -kInf);
      x.select(1, 0).fill_(0.25);
      x.select(1, columns - 1).fill_(-kInf);
      for (const std::string& form : kLogprobForms) {
        check_logprob(x, random_targets({5}, columns, device), {.form = form});
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("entropy of rows with nothing to choose, and with everything", "[logprob]") {
  const int64_t columns = 1000;
  at::Tensor x = at::full({3, columns}, -kInf, at::TensorOptions(device));
  x.select(1, 7).fill_(2.0);
  x[1].fill_(-3.0);
  x[2].copy_(at::arange(columns, at::kFloat).to(device));  // all but the last are next to nothing
  const at::Tensor entropy =
      std::get<1>(warpfuse::fused_logprob_entropy(x, targets_of({7, 7, 7}, device)));
  CHECK(entropy[0].item<double>() == 0.0);
  CHECK(std::abs(entropy[1].item<double>() - std::log(1000.0)) < 2e-6);
  CHECK(std::abs(entropy[2].item<double>() - 1.0406518) < 2e-6);
}

WARPFUSE_DEVICE_TEST("ignored targets give zeros, whatever their rows hold", "[logprob]") {
  for (const at::ScalarType index : {at::kInt, at::kLong}) {
    // An ignored value may be a column as well.
    for (const int64_t ignored : {-100, -1, 0, 3, 2'000'000'000}) {
      for (const int64_t columns : {5, 9000}) {
        at::Tensor x = random_tensor({6, columns}, at::kFloat, device);
        x[1].fill_(kNaN);
        x[4].fill_(kInf);
        const at::Tensor targets = targets_of({1, ignored, 2, ignored, ignored, 4}, device, index);
        const at::Tensor is_ignored = targets.eq(ignored);
        for (const std::string form : {"logprob", "entropy"}) {
          const Poison poison;
          INFO(form << ", " << columns << " columns, ignore_index " << ignored);
          const LogprobArguments arguments{.ignore_index = ignored, .form = form};
          const at::Tensor variable = x.clone().set_requires_grad(true);
          const auto results = logprob(variable, targets, arguments);
          at::Tensor sum = results[0].sum();
          if (results.size() > 1) {
            sum = sum + results[1].sum();
          }
          const at::Tensor gradient = torch::autograd::grad({sum}, {variable})[0];
          for (const at::Tensor& result : results) {
            CHECK(result.masked_select(is_ignored).eq(0).all().item<bool>());
            CHECK_FALSE(result.masked_select(is_ignored.logical_not()).eq(0).any().item<bool>());
          }
          const auto of_ignored = gradient.index({is_ignored});
          CHECK(of_ignored.eq(0).all().item<bool>());
          CHECK(gradient.index({is_ignored.logical_not()}).isfinite().all().item<bool>());
        }
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("a row with an ignored target keeps its lse and the lse's gradient",
                     "[logprob]") {
  const at::Tensor x = random_tensor({4, 700}, at::kDouble, device);
  const at::Tensor targets = targets_of({3, -100, 5, -100}, device);
  const auto of_lse = [&](const auto& function) { return differentiate(function, x, 1); };
  const LogprobArguments arguments{.temperature = 0.9, .form = "lse"};
  const auto ours = of_lse([&](const at::Tensor& in) { return logprob(in, targets, arguments); });
  const auto aten = of_lse([&](const at::Tensor& in) {
    return std::vector<at::Tensor>{in, at::logsumexp(in / 0.9, -1)};
  });
  CHECK(far_apart(ours.results[1], aten.results[1], 1e-14) == "");
  CHECK(far_apart(ours.gradient, aten.gradient, 1e-14) == "");
}

WARPFUSE_DEVICE_TEST("targets of other shards give -inf and no gradient", "[logprob]") {
  for (const int64_t columns : {40, 9000}) {
    const at::Tensor x = random_tensor({5, columns}, at::kFloat, device);
    const int64_t start = 1000;
    const at::Tensor targets =
        targets_of({start, start - 1, 0, start + columns, start + columns - 1}, device);
    const LogprobArguments arguments{.vocab_start = start, .form = "lse"};
    check_logprob(x, targets, arguments);
    const auto ours =
        differentiate([&](const at::Tensor& in) { return logprob(in, targets, arguments); }, x, 0);
    CHECK(ours.results[0].narrow(0, 1, 3).eq(-kInf).all().item<bool>());
    CHECK(ours.results[0].isfinite().sum().item<int64_t>() == 2);
    CHECK(ours.gradient.narrow(0, 1, 3).eq(0).all().item<bool>());
    CHECK(ours.gradient[0].ne(0).any().item<bool>());
  }
  // The largest targets there are do not wrap into the shard.
  const at::Tensor x = random_tensor({2, 40}, at::kFloat, device);
  const int64_t most = std::numeric_limits<int64_t>::max();
  for (const int64_t start : {int64_t{0}, int64_t{1}, most - 39, most}) {
    const LogprobArguments arguments{.vocab_start = start, .form = "lse"};
    check_logprob(x, targets_of({most, 0}, device), arguments);
  }
}

WARPFUSE_DEVICE_TEST("a shard that is masked throughout merges with others", "[logprob]") {
  const at::Tensor values = random_tensor({2, 600}, at::kDouble, device);
  values.narrow(1, 0, 200).fill_(-kInf);
  const at::Tensor targets = targets_of({250, 599}, device);
  const auto merged = [&](const at::Tensor& x) {
    const auto first =
        warpfuse::fused_logprob_lse(x.narrow(1, 0, 200), targets, -100, 1.0, false, 0);
    const auto second =
        warpfuse::fused_logprob_lse(x.narrow(1, 200, 400), targets, -100, 1.0, false, 200);
    const at::Tensor lse = at::logaddexp(std::get<1>(first), std::get<1>(second));
    return std::vector<at::Tensor>{std::get<0>(second) + std::get<1>(second) - lse};
  };
  const auto whole = [&](const at::Tensor& x) { return logprob(x, targets, {}); };
  const Differentiated got = differentiate(merged, values, 0);
  const Differentiated expected = differentiate(whole, values, 0);
  CHECK(far_apart(got.results[0], expected.results[0], 1e-14) == "");
  CHECK(far_apart(got.gradient, expected.gradient, 1e-14) == "");
}

TEST_CASE("a wrong target on the CPU is named with its position", "[logprob][errors]") {
  const at::Tensor x = random_tensor({2, 3, 5}, at::kFloat);
  const auto message = [&](const std::string& op, const std::string& rest) {
    return "Error: warpfuse::" + op + ": targets: expected values " + rest;
  };
  const auto with = [](int64_t value) {
    const at::Tensor targets = at::zeros({2, 3}, at::kLong);
    targets[1][2].fill_(value);
    return targets;
  };
  for (const bool check : {false, true}) {
    for (const int64_t value : {int64_t{5}, int64_t{-1}, int64_t{1} << 40, -(int64_t{1} << 40)}) {
      const std::string got =
          "in [0, 5), or ignore_index -100, got " + std::to_string(value) + " at [1, 2]";
      CHECK(error_of([&] { logprob(x, with(value), {}, check); }) == message("fused_logprob", got));
      CHECK(error_of([&] { logprob(x, with(value), {.form = "entropy"}, check); }) ==
            message("fused_logprob_entropy", got));
      const at::Tensor variable = x.clone().set_requires_grad(true);
      CHECK(error_of([&] { logprob(variable, with(value), {}, check); }) ==
            message("fused_logprob", got));
    }
    CHECK(error_of([&] { logprob(x, with(-7), {.ignore_index = 3, .form = "lse"}, check); }) ==
          message("fused_logprob_lse", "0 or more, or ignore_index 3, got -7 at [1, 2]"));
  }
  // The backward, called alone, reads no column that is not there either.
  const LogprobResults results = logprob_with_statistics(x, with(0), {});
  CHECK(error_of([&] {
          logprob_backward(x, with(5), results, random_gradients(results, "logprob"), {});
        }) ==
        message("_fused_logprob_backward", "in [0, 5), or ignore_index -100, got 5 at [1, 2]"));
}

WARPFUSE_GPU_TEST("a wrong target on the GPU is NaN in its row, or an error when asked",
                  "[logprob][errors]") {
  for (const int64_t columns : {5, 9000, 50'257}) {
    const at::Tensor x = random_tensor({6, columns}, at::kFloat, device);
    for (const int64_t value : {columns, int64_t{-1}, int64_t{1} << 40, -(int64_t{1} << 40)}) {
      const at::Tensor targets = targets_of({0, value, 1, columns - 1, value, -100}, device);
      const at::Tensor wrong = targets.eq(value);
      for (const std::string form : {"logprob", "entropy"}) {
        const at::Tensor variable = x.clone().set_requires_grad(true);
        const auto results = logprob(variable, targets, {.form = form});
        for (const at::Tensor& result : results) {
          CHECK(at::equal(result.isnan(), wrong));
        }
        const at::Tensor gradient = torch::autograd::grad({results[0].sum()}, {variable})[0];
        CHECK(at::equal(gradient.isnan().all(-1), wrong));
        CHECK(at::equal(gradient.isnan().any(-1), wrong));
        CHECK(error_of([&] {
                logprob(x, targets, {.form = form}, true);
              }).find(", got " + std::to_string(value) + " at [1]") != std::string::npos);
      }
    }
  }
  const at::Tensor x = random_tensor({2, 40}, at::kFloat, device);
  const auto shard = logprob(x, targets_of({-1, 50}, device), {.form = "lse"});
  CHECK(shard[0][0].isnan().item<bool>());
  CHECK(shard[0][1].item<double>() == -kInf);
  CHECK(shard[1].isfinite().all().item<bool>());
  // Good targets pass the check.
  CHECK(logprob(x, targets_of({0, 39}, device), {}, true)[0].isfinite().all().item<bool>());
}

WARPFUSE_DEVICE_TEST("empty logits", "[logprob]") {
  const auto options = at::TensorOptions(device);
  for (const std::vector<int64_t>& leading :
       std::vector<std::vector<int64_t>>{{0}, {0, 3}, {2, 0}, {2, 0, 4}}) {
    for (const int64_t columns : {0, 7}) {
      std::vector<int64_t> shape = leading;
      shape.push_back(columns);
      for (const std::string& form : kLogprobForms) {
        const at::Tensor x = at::empty(shape, options).set_requires_grad(true);
        const auto results =
            logprob(x, at::empty(leading, options.dtype(at::kLong)), {.form = form}, true);
        for (const at::Tensor& result : results) {
          CHECK(result.sizes() == at::IntArrayRef(leading));
        }
        CHECK(torch::autograd::grad({results[0].sum()}, {x})[0].sizes() == x.sizes());
      }
    }
  }
  for (const std::string& form : kLogprobForms) {
    const at::Tensor none = at::empty({2, 0}, options);
    const at::Tensor ignored = at::full({2}, -100, options.dtype(at::kLong));
    CHECK(error_of([&] {
            logprob(none, ignored, {.form = form});
          }).find("logits: expected at least one column, got shape [2, 0]") != std::string::npos);
  }
}
