// The operators with dropout beside their values: bad input, autocast, counters, and models that
// are frozen. (Meta: tests/python/test_operators.py.)

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/irparser.h>

#include "support/autocast.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/dropout.h"
#include "support/errors.h"
#include "support/inputs.h"
#include "support/operators.h"
#include "support/pch.h"

namespace {

std::string complaint(const std::string& text) { return "Error: warpfuse::" + text; }

at::Tensor attention(const at::Tensor& scores, double p, bool training = true) {
  return warpfuse::scaled_masked_softmax_dropout(scores, 1.0, {}, "none", {}, {}, 0, {}, p,
                                                 training);
}

}  // namespace

// --- bad input ----------------------------------------------------------------------------------

WARPFUSE_DEVICE_TEST("a dropout_p that is no probability", "[errors][dropout]") {
  const at::Tensor x = at::zeros({2, 3}, at::TensorOptions(device));
  const at::Tensor rng = rng_of(0, 0, device);
  const std::string expected = ": dropout_p: expected a probability from 0 to 1, got ";
  for (const auto& [p, text] : std::vector<std::pair<double, std::string>>{
           {-0.1, "-0.1"}, {1.5, "1.5"}, {kNaN, "nan"}, {kInf, "inf"}}) {
    const auto check = [&](const std::string& name, const auto& call) {
      CHECK(error_of(call) == complaint(name + expected + text));
    };
    for (const bool training : {false, true}) {
      check("dropout_softmax", [&] { warpfuse::dropout_softmax(x, 1, p, training); });
      check("softmax_dropout", [&] { warpfuse::softmax_dropout(x, 1, p, training); });
      check("linear_dropout_softmax",
            [&] { warpfuse::linear_dropout_softmax(x, x, {}, p, training); });
      check("scaled_masked_softmax_dropout", [&] { attention(x, p, training); });
    }
    check("_dropout_softmax", [&] { dropout_softmax(x, {.dim = 1, .p = p}, rng); });
    check("_dropout_softmax_backward",
          [&] { dropout_softmax_backward(x, x, x, rng, {.dim = 1, .p = p}); });
    check("_dropout_mask", [&] { dropout_mask(x, p, rng); });
    check("_scaled_masked_softmax_dropout", [&] { masked_dropout(x, {}, p, rng); });
  }
}

WARPFUSE_DEVICE_TEST("an rng that is none", "[errors][dropout]") {
  const at::Tensor x = at::zeros({2, 3}, at::TensorOptions(device));
  const auto integers = at::TensorOptions(device).dtype(at::kLong);
  for (const auto& [rng, text] : std::vector<std::pair<at::Tensor, std::string>>{
           {at::zeros({3}, integers), "expected shape [2], got [3]"},
           {at::zeros({1, 2}, integers), "expected shape [2], got [1, 2]"},
           {at::zeros({}, integers), "expected shape [2], got []"},
           {at::zeros({2}, integers.dtype(at::kInt)), "expected Long, got Int"},
           {at::zeros({2}, integers.dtype(at::kFloat)), "expected Long, got Float"}}) {
    const at::Tensor& given = rng;
    const auto check = [&, &message = text](const std::string& name, const auto& call) {
      CHECK(error_of(call) == complaint(name + ": rng: " + message));
    };
    check("_dropout_softmax", [&] { dropout_softmax(x, {}, given); });
    check("_dropout_softmax_backward", [&] { dropout_softmax_backward(x, x, x, given, {}); });
    check("_linear_dropout_softmax", [&] { linear_dropout_softmax(x, x, {}, 0.5, given); });
    check("_dropout_mask", [&] { dropout_mask(x, 0.5, given); });
    check("_scaled_masked_softmax_dropout", [&] { masked_dropout(x, {}, 0.5, given); });
  }
}

WARPFUSE_DEVICE_TEST("linear's shapes and dtypes", "[errors][dropout]") {
  const auto zeros = [&](at::IntArrayRef shape, at::ScalarType dtype = at::kFloat) {
    return at::zeros(shape, at::TensorOptions(device).dtype(dtype));
  };
  const auto error = [&](const at::Tensor& input, const at::Tensor& weight,
                         const std::optional<at::Tensor>& bias = std::nullopt) {
    return error_of([&] { warpfuse::linear_dropout_softmax(input, weight, bias); });
  };
  const auto says = [](const std::string& text) {
    return complaint("linear_dropout_softmax: " + text);
  };
  CHECK(error(zeros({2, 3}), zeros({5, 4})) ==
        says("weight: expected [out, in] with in = 3, got [5, 4]"));
  CHECK(error(zeros({2, 3}), zeros({3})) ==
        says("weight: expected [out, in] with in = 3, got [3]"));
  CHECK(error(zeros({}), zeros({5, 4})) == says("input: expected [..., in], got 0 dimensions"));
  CHECK(error(zeros({2, 3}), zeros({5, 3}), zeros({3})) ==
        says("bias: expected shape [out] = [5], got [3]"));
  CHECK(error(zeros({2, 3}), zeros({5, 3}), zeros({1, 5})) ==
        says("bias: expected shape [out] = [5], got [1, 5]"));
  CHECK(error(zeros({2, 3}), zeros({5, 3}, at::kDouble)) ==
        says("weight: expected Float, got Double"));
  CHECK(error(zeros({2, 3}), zeros({5, 3}), zeros({5}, at::kHalf)) ==
        says("bias: expected Float, got Half"));
  const std::string floating = "expected float64, float32, float16 or bfloat16, got Long";
  CHECK(error(zeros({2, 3}, at::kLong), zeros({5, 3}, at::kLong)) == says("input: " + floating));
  CHECK(error(zeros({2, 3}), zeros({5, 3}), zeros({5}, at::kLong)) == says("bias: " + floating));
}

WARPFUSE_DEVICE_TEST("dtypes, dims and statistics", "[errors][dropout]") {
  const at::Tensor x = at::zeros({2, 3}, at::TensorOptions(device));
  const at::Tensor integers = x.to(at::kInt);
  const std::string floating = "expected float64, float32, float16 or bfloat16, got Int";
  CHECK(error_of([&] { warpfuse::dropout_softmax(integers, 1); }) ==
        complaint("dropout_softmax: self: " + floating));
  CHECK(error_of([&] { warpfuse::softmax_dropout(integers, 1, 0.5, false); }) ==
        complaint("softmax_dropout: self: " + floating));
  CHECK(error_of([&] { attention(integers, 0.5); }) ==
        complaint("scaled_masked_softmax_dropout: scores: " + floating));
  const std::string out_of_range =
      "IndexError: Dimension out of range (expected to be in range of [-2, 1], but got 2)";
  CHECK(error_of([&] { warpfuse::dropout_softmax(x, 2); }) == out_of_range);
  CHECK(error_of([&] { warpfuse::softmax_dropout(x, 2); }) == out_of_range);

  const at::Tensor rng = rng_of(0, 0, device);
  const auto backward = [&](const at::Tensor& grad, const at::Tensor& statistics) {
    return error_of([&] {
      dropout_softmax_backward(grad, x, statistics, rng, {.dim = 1, .softmax_first = true});
    });
  };
  const std::string name = "_dropout_softmax_backward: ";
  CHECK(backward(x, x) ==
        complaint(name + "statistics: expected shape [rows, 2] = [2, 2], got [2, 3]"));
  CHECK(backward(x, x.to(at::kDouble)) ==
        complaint(name + "statistics: expected Float, got Double"));
  CHECK(backward(x.t(), x) == complaint(name + "grad_output: expected shape [2, 3], got [3, 2]"));
}

WARPFUSE_GPU_TEST("random state on another device", "[errors][dropout]") {
  const at::Tensor x = at::zeros({2, 3}, at::TensorOptions(device));
  const std::string where = "expected a tensor on cuda:0, got cpu";
  CHECK(error_of([&] { dropout_softmax(x, {}, rng_of(0, 0, at::kCPU)); }) ==
        complaint("_dropout_softmax: rng: " + where));
  CHECK(error_of([&] { warpfuse::linear_dropout_softmax(x, at::zeros({5, 3})); }) ==
        complaint("linear_dropout_softmax: weight: " + where));
}

// --- autocast, counters -------------------------------------------------------------------------

WARPFUSE_DEVICE_TEST("autocast of the operators with dropout", "[autocast][dropout]") {
  for (const at::ScalarType cast : {at::kBFloat16, at::kHalf}) {
    const Autocast autocast(device.type(), cast);
    for (const at::ScalarType from : {at::kFloat, cast}) {
      for (const bool training : {false, true}) {
        const at::Tensor x = random_tensor({5, 33}, from, device).set_requires_grad(true);
        const at::Tensor weight = random_tensor({7, 33}, from, device).set_requires_grad(true);
        const at::ScalarType of_softmax = at::softmax(x, 1).scalar_type();
        CHECK(warpfuse::dropout_softmax(x, 1, 0.5, training).scalar_type() == of_softmax);
        CHECK(warpfuse::softmax_dropout(x, 1, 0.5, training).scalar_type() == of_softmax);
        CHECK(attention(x, 0.5, training).scalar_type() == from);
        const at::Tensor output = warpfuse::linear_dropout_softmax(x, weight, {}, 0.5, training);
        const at::ScalarType of_linear = at::linear(x, weight).scalar_type();
        CHECK(of_linear == cast);
        CHECK(output.scalar_type() == of_linear);
        for (const at::Tensor& grad :
             torch::autograd::grad({output}, {x, weight}, {at::ones_like(output)})) {
          CHECK(grad.scalar_type() == from);
        }
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("calls with dropout are counted", "[counters][dropout]") {
  const std::string backend = "." + backend_name(device);
  const at::Tensor x = random_tensor({3, 33}, at::kFloat, device).set_requires_grad(true);
  const CounterDelta forward("dropout_softmax" + backend);
  const CounterDelta backward("dropout_softmax_backward" + backend);
  const CounterDelta linear("linear_dropout_softmax" + backend);
  const CounterDelta masked("scaled_masked_softmax_dropout" + backend);
  const CounterDelta masked_backward("scaled_masked_softmax_dropout_backward" + backend);
  const CounterDelta mask("dropout_mask" + backend);
  warpfuse::dropout_softmax(x, 1).sum().backward();
  warpfuse::softmax_dropout(x, 0).sum().backward();
  CHECK(forward() == 2);
  CHECK(backward() == 2);
  warpfuse::linear_dropout_softmax(x, x).sum().backward();
  CHECK(linear() == 1);
  CHECK(backward() == 3);
  attention(x, 0.5).sum().backward();
  CHECK(masked() == 1);
  CHECK(masked_backward() == 1);
  dropout_mask(x, 0.5, rng_of(0, 0, device));
  CHECK(mask() == 1);
  CHECK(forward() == 2);
}

// --- frozen models ------------------------------------------------------------------------------

namespace {

/// A module in evaluation mode whose forward calls `call` on a constant %x.
torch::jit::Module module_of(const std::string& call, const at::Tensor& x) {
  auto graph = std::make_shared<torch::jit::Graph>();
  torch::jit::parseIR(R"IR(
graph(%x : Tensor, %p : float, %dim : int, %on : bool, %off : bool, %none : NoneType):
  %y : Tensor = )IR" + call +
                          R"IR(
  return (%y))IR",
                      graph.get());
  const std::vector<c10::IValue> values = {x, 0.5, 1, true, false, c10::IValue()};
  torch::jit::WithInsertPoint guard(*graph->nodes().begin());
  for (size_t i = 0; i < values.size(); ++i) {
    graph->inputs()[i]->replaceAllUsesWith(graph->insertConstant(values[i]));
  }
  for (size_t i = values.size(); i-- > 0;) {
    graph->eraseInput(i);
  }
  torch::jit::Module module("__torch__.Dropping");
  module.register_attribute("training", c10::BoolType::get(), false);
  graph->insertInput(0, "self")->setType(module.type());
  module.type()->addMethod(module._ivalue()->compilation_unit()->create_function(
      c10::QualifiedName(*module.type()->name(), "forward"), graph));
  return module;
}

}  // namespace

WARPFUSE_DEVICE_TEST("freezing does not bake a mask into a module", "[freeze][dropout]") {
  const at::Tensor x = random_tensor({8, 100}, at::kFloat, device);
  for (const std::string call :
       {"warpfuse::dropout_softmax(%x, %dim, %p, %on)",
        "warpfuse::softmax_dropout(%x, %dim, %p, %on)",
        "warpfuse::linear_dropout_softmax(%x, %x, %none, %p, %on, %off)"}) {
    INFO(call);
    const torch::jit::Module module = module_of(call, x);
    for (torch::jit::Module form : {module, torch::jit::freeze(module)}) {
      std::vector<at::Tensor> outputs;
      for (int run = 0; run < 4; ++run) {
        outputs.push_back(form.forward({}).toTensor());
        for (int before = 0; before < run; ++before) {
          CHECK(!outputs[run].equal(outputs[before]));
        }
      }
      at::manual_seed(1);
      const at::Tensor seeded = form.forward({}).toTensor();
      at::manual_seed(1);
      CHECK(form.forward({}).toTensor().equal(seeded));
    }
  }
}
