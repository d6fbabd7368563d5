// The counters: each operator's, each branch's, reading and resetting; and every algorithm by name.

#include <ATen/record_function.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "support/compare.h"
#include "support/devices.h"
#include "support/dropout.h"
#include "support/errors.h"
#include "support/inputs.h"
#include "support/logprob_checks.h"
#include "support/masks.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/row_engine.h"
#include "support/threads.h"

namespace {

using Counts = std::map<std::string, int64_t>;

Counts counts() { return nlohmann::json::parse(warpfuse::call_counts()).get<Counts>(); }

/// Which counters `call` moved, and by how much.
template <typename Call>
Counts moved_by(const Call& call) {
  const Counts before = counts();
  call();
  Counts moved;
  for (const auto& [name, count] : counts()) {
    if (count != before.at(name)) {
      moved[name] = count - before.at(name);
    }
  }
  return moved;
}

thread_local int64_t dispatches = 0;

/// How often `call` enters the dispatcher for an operator of the plugin.
template <typename Call>
int64_t dispatches_of(const Call& call) {
  const auto count =
      [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
    dispatches += std::string_view(function.name()).starts_with("warpfuse::") ? 1 : 0;
    return nullptr;
  };
  dispatches = 0;
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(count));
  call();
  at::removeCallback(handle);
  return dispatches;
}

}  // namespace

WARPFUSE_DEVICE_TEST("a call without a gradient makes no node and is dispatched once",
                     "[counters]") {
  at::Tensor x = random_tensor({3, 33}, at::kFloat, device);
  const at::Tensor targets = at::zeros({3}, at::TensorOptions(device).dtype(at::kLong));
  const auto check = [&](int64_t expected) {
    std::vector<at::Tensor> results;
    CHECK(dispatches_of([&] { results = {warpfuse::softmax(x, 1)}; }) == expected);
    CHECK(dispatches_of([&] { results.push_back(warpfuse::log_softmax(x, 0, at::kDouble)); }) ==
          expected);
    CHECK(dispatches_of([&] { results.push_back(masked_softmax(x, {.causal = "upper_left"})); }) ==
          expected);
    for (const std::string& form : kLogprobForms) {
      std::ranges::copy(logprob(x, targets, {.form = form}), std::back_inserter(results));
    }
    for (const at::Tensor& result : results) {
      CHECK((result.grad_fn() != nullptr) == (expected > 1));
    }
  };
  check(1);
  x.set_requires_grad(true);
  check(2);  // the node's forward is the operator below autograd
  const at::NoGradGuard no_grad;
  check(1);
}

WARPFUSE_DEVICE_TEST("each call moves its operator's counter by one", "[counters]") {
  const std::string backend = c10::str(".", backend_name(device));
  const at::Tensor x = random_tensor({3, 33}, at::kFloat, device);
  const at::Tensor targets = at::zeros({3}, at::TensorOptions(device).dtype(at::kLong));
  const auto moved = [&](const auto& call) {
    Counts counts = moved_by(call);
    std::erase_if(counts, [&](const auto& item) { return !item.first.ends_with(backend); });
    return counts;
  };
  struct Counted {
    std::string forward, backward;
    std::function<at::Tensor(const at::Tensor&)> call;
  };
  std::vector<Counted> operators = {
      {"softmax", "softmax", [](const at::Tensor& in) { return warpfuse::softmax(in, 1); }},
      {"log_softmax", "log_softmax",
       [](const at::Tensor& in) { return warpfuse::log_softmax(in, 0); }},
      {"scaled_masked_softmax", "scaled_masked_softmax",
       [](const at::Tensor& in) { return masked_softmax(in, {}); }},
      {"scaled_masked_softmax_dropout", "scaled_masked_softmax_dropout",
       [](const at::Tensor& in) {
         return warpfuse::scaled_masked_softmax_dropout(in, 1.0, {}, "none", {}, {}, 0, {}, 0.5,
                                                        true);
       }},
      {"dropout_softmax", "dropout_softmax",
       [](const at::Tensor& in) { return warpfuse::dropout_softmax(in, 1); }},
      {"dropout_softmax", "dropout_softmax",
       [](const at::Tensor& in) { return warpfuse::softmax_dropout(in, 0); }},
      {"linear_dropout_softmax", "dropout_softmax",
       [](const at::Tensor& in) { return warpfuse::linear_dropout_softmax(in, in); }}};
  for (const std::string& form : kLogprobForms) {
    operators.push_back(
        {form == "logprob" ? "fused_logprob" : "fused_logprob_" + form, "fused_logprob",
         [&](const at::Tensor& in) { return logprob(in, targets, {.form = form})[0]; }});
  }
  for (const Counted& op : operators) {
    INFO(op.forward);
    CHECK(moved([&] { op.call(x); }) == Counts{{op.forward + backend, 1}});
    const at::Tensor variable = x.clone().set_requires_grad(true);
    CHECK(moved([&] { op.call(variable).sum().backward(); }) ==
          Counts{{op.forward + backend, 1}, {op.backward + "_backward" + backend, 1}});
  }
  CHECK(moved([&] { dropout_mask(x, 0.5, rng_of(0, 0, device)); }) ==
        Counts{{"dropout_mask" + backend, 1}});
  CHECK(moved([&] {
          for (int i = 0; i < 7; ++i) {
            warpfuse::softmax(x, 1);
          }
        }) == Counts{{"softmax" + backend, 7}});
  CHECK(moved([&] { error_of([&] { warpfuse::softmax(x, 9); }); }).empty());  // no call
}

TEST_CASE("a Meta call moves no counter", "[counters][meta]") {
  const at::Tensor x = at::empty({3, 4}, at::TensorOptions(at::kMeta));
  CHECK(moved_by([&] {
          warpfuse::softmax(x, 1);
          masked_softmax(x, {});
        }).empty());
}

TEST_CASE("the counters of a GPU are there without one, and each is read by name", "[counters]") {
  const Counts all = counts();
#ifdef WARPFUSE_WITH_CUDA
  for (const std::string name :
       {"softmax.cuda", "log_softmax.cuda", "scaled_masked_softmax.cuda", "softmax_backward.cuda",
        "log_softmax_backward.cuda", "scaled_masked_softmax_backward.cuda", "tier.warp",
        "tier.span", "tier.block", "tier.cluster", "tier.stream", "tier.column", "tier.naive",
        "tier.elements", "tier.tile"}) {
    CHECK(all.count(name) == 1);
  }
#endif
  for (const auto& [name, count] : all) {
    CHECK(warpfuse::call_count(name) == count);
    CHECK(count >= 0);
  }
}

TEST_CASE("counters are reset together", "[counters]") {
  const at::Tensor x = random_tensor({3, 33}, at::kFloat);
  warpfuse::softmax(x, 1);
  warpfuse::softmax(x, 0);
  CHECK(warpfuse::call_count("softmax.cpu") >= 2);
  warpfuse::reset_call_counts();
  for (const auto& [name, count] : counts()) {
    INFO(name);
    CHECK(count == 0);
  }
  warpfuse::log_softmax(x, 1);
  CHECK(warpfuse::call_count("log_softmax.cpu") == 1);
}

TEST_CASE("a counter that is not there", "[counters][errors]") {
  for (const std::string name : {"softmax", "softmax.tpu", ""}) {
    const std::string got = error_of([&] { warpfuse::call_count(name); });
    INFO(got);
    CHECK(got.rfind("Error: warpfuse::call_count: name: expected ", 0) == 0);
    CHECK(got.find("softmax.cpu") != std::string::npos);
    CHECK(got.find(c10::str(", got \"", name, "\"")) != std::string::npos);
  }
}

TEST_CASE("each CPU branch runs where it should", "[counters][tiers]") {
  const at::Tensor x = random_tensor({5, 66, 30}, at::kFloat);
  const auto one = [](const std::string& name) { return Counts{{name, 1}}; };
  const auto branch = [&](const auto& call) {
    Counts moved = moved_by(call);
    std::erase_if(moved, [](const auto& item) { return item.first.rfind("cpu.", 0) != 0; });
    return moved;
  };
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    CHECK(branch([&] { op(x, -1); }) == one("cpu.rows"));
    CHECK(branch([&] { op(x.slice(-1, 0, 3), -1); }) == one("cpu.transposed"));
    CHECK(branch([&] { op(x, 1); }) == one("cpu.column"));
    CHECK(branch([&] { op(x, 0); }) == one("cpu.column"));
    CHECK(branch([&] { softmax_algorithm(x, 1, "naive", op.log); }) == one("cpu.naive"));
    CHECK(branch([&] { softmax_algorithm(x, 2, "vector", op.log); }) == one("cpu.rows"));
    // Nothing to do, nothing done.
    CHECK(branch([&] { op(x.narrow(0, 0, 0), 1); }).empty());
  }
  CHECK(branch([&] { masked_softmax(x, {}); }) == one("cpu.masked_rows"));
  CHECK(branch([&] { masked_softmax(x.slice(-1, 0, 15), {}); }) == one("cpu.masked_transposed"));
  CHECK(branch([&] { dropout_softmax(x, {}); }) == one("cpu.dropout_rows"));
  CHECK(branch([&] { dropout_softmax(x.slice(-1, 0, 15), {}); }) == one("cpu.dropout_transposed"));
}

TEST_CASE("few long rows of logits are shared by threads", "[counters][logprob]") {
  const Threads threads(4);
  const auto branch = [](int64_t rows, int64_t columns) -> std::string {
    const at::Tensor targets = at::zeros({rows}, at::kLong);
    const CounterDelta in_parts("cpu.logprob_parts");
    const CounterDelta in_rows("cpu.logprob_rows");
    logprob(at::zeros({rows, columns}), targets, {});
    CHECK(in_parts() + in_rows() == 1);
    return in_parts() == 1 ? "parts" : "rows";
  };
  CHECK(branch(1, 128'256) == "parts");
  CHECK(branch(3, 128'256) == "parts");
  CHECK(branch(4, 128'256) == "rows");
  CHECK(branch(1, 1000) == "rows");
}

WARPFUSE_DEVICE_TEST("every algorithm gives what the default gives", "[algorithms]") {
  for (const std::string& algorithm : algorithms_on(device)) {
    const CounterDelta ran(device.is_cuda()       ? c10::str("tier.", algorithm)
                           : algorithm == "naive" ? "cpu.naive"
                                                  : "cpu.rows");
    const CounterDelta transposed("cpu.transposed");
    int64_t launches = 0;
    for (const SoftmaxOperator& op : kSoftmaxOperators) {
      for (const at::ScalarType dtype : kDtypes) {
        for (const int64_t columns : {1, 2, 31, 32, 33, 127, 1000, 1025, 4097, 9000, 50257}) {
          const at::Tensor x = random_tensor({5, columns}, dtype, device);
          INFO(algorithm << ", " << op.name << " of " << describe(x));
          if (device.is_cuda() && algorithm != "naive") {
            const auto plan = plan_by_name(algorithm, x);
            if (!plan) {
              continue;  // test_cuda_tiers.cpp has what it says then
            }
            launches += launches_of(*plan);
          } else {
            ++launches;
          }
          const Poison poison;
          const at::Tensor output = softmax_algorithm(x, -1, algorithm, op.log);
          CHECK(output.scalar_type() == dtype);
          CHECK(mismatch(output, op.expected(x, -1)) == "");
        }
      }
    }
    CHECK(launches >= int64_t{2} * 4 * 5);
    CHECK(ran() + transposed() == launches);
  }
}

WARPFUSE_DEVICE_TEST("the naive algorithm over any dimension and stride", "[algorithms]") {
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    const at::Tensor x = random_tensor({5, 7, 66}, at::kFloat, device).transpose(1, 2);
    for (const int64_t dim : {0, 1, 2, -1}) {
      CHECK(mismatch(softmax_algorithm(x, dim, "naive", op.log), op.expected(x, dim)) == "");
    }
  }
}
