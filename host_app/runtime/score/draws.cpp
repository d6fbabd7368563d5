#include "runtime/score/draws.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <c10/core/InferenceMode.h>

#include "runtime/errors.h"

namespace warpfuse::host {
namespace {

at::Tensor random_tensor(const InputSpec& input, at::Generator& generator) {
  const at::TensorOptions options = at::TensorOptions().device(at::kCPU);
  return c10::isFloatingType(input.dtype)
             ? at::randn(input.shape, generator, options.dtype(at::kFloat)) *
                   input.standard_deviation
             : at::randint(input.low, input.high, input.shape, generator, options.dtype(at::kLong));
}

// The tensors of a module's result, whatever tuples, lists or dictionaries they are in.
// NOLINTNEXTLINE(misc-no-recursion): it follows the nesting of the value.
void collect_tensors(const c10::IValue& value, std::vector<at::Tensor>& tensors) {
  if (value.isTensor()) {
    tensors.push_back(value.toTensor());
  } else if (value.isTuple()) {
    for (const c10::IValue& element : value.toTupleRef().elements()) {
      collect_tensors(element, tensors);
    }
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      collect_tensors(element, tensors);
    }
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) {
      collect_tensors(entry.value(), tensors);
    }
  }
}

// Empty, with the error, where the model cannot take the inputs.
std::vector<at::Tensor> try_forward(const Forward& forward, const std::vector<at::Tensor>& inputs,
                                    std::string& error) {
  try {
    return forward(inputs);
  } catch (const Error& raised) {
    if (raised.code() != ExitCode::model) {
      throw;
    }
    error = raised.what();
    return {};
  }
}

Difference compare_outputs(const std::vector<at::Tensor>& outputs,
                           const std::vector<at::Tensor>& expected) {
  if (outputs.size() != expected.size() || expected.empty()) {
    fail(ExitCode::model,
         "forward: the model returns {} tensors, the reference {}; there must be equally many, at "
         "least 1",
         outputs.size(), expected.size());
  }
  Difference difference;
  for (size_t i = 0; i < outputs.size(); ++i) {
    difference.include(difference_between(outputs[i], expected[i]));
  }
  return difference;
}

}  // namespace

std::vector<at::Tensor> random_inputs(const Draw& draw, at::Generator& generator,
                                      c10::Device device) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(draw.inputs.size());
  for (const InputSpec& input : draw.inputs) {
    tensors.push_back(random_tensor(input, generator).to(device, input.dtype));
  }
  return tensors;
}

Forward forward_of(const torch::jit::Module& module) {
  return [module](const std::vector<at::Tensor>& inputs) {
    // Copies, since a module may write into its inputs.
    std::vector<c10::IValue> arguments;
    arguments.reserve(inputs.size());
    for (const at::Tensor& input : inputs) {
      arguments.emplace_back(input.clone());
    }
    std::vector<at::Tensor> tensors;
    collect_tensors(translating_errors(ExitCode::model, "forward",
                                       [&] { return module.get_method("forward")(arguments); }),
                    tensors);
    return tensors;
  };
}

Forward forward_of(const LanguageModel& model) {
  return [model](const std::vector<at::Tensor>& inputs) {
    const at::Tensor& ids = inputs.front();
    const int64_t batch = ids.size(0), length = ids.size(1);
    model.require_fits(length);
    const at::Tensor positions = positions_of(ids);
    const at::Tensor last = at::full({batch}, length - 1, ids.options());
    const Cache cache = model.make_cache(batch, model.slots_for(length));
    return std::vector{model.forward(ids, positions, cache),
                       model.prefill(ids, positions, last, cache)};
  };
}

std::vector<StepComparison> compare_draws(const Forward& model, const Forward& reference,
                                          const std::vector<Draw>& draws, c10::Device device,
                                          uint64_t seed) {
  const c10::InferenceMode inference;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  std::vector<StepComparison> comparisons;
  comparisons.reserve(draws.size());
  for (const Draw& draw : draws) {
    StepComparison& step = comparisons.emplace_back(StepComparison{.name = draw.name});
    const std::vector<at::Tensor> inputs = random_inputs(draw, generator, device);
    const auto outputs = [&](const Forward& forward, std::string& error) {
      at::manual_seed(seed + comparisons.size());  // for the model's own random numbers
      return try_forward(forward, inputs, error);
    };
    const std::vector<at::Tensor> expected = outputs(reference, step.reference_error);
    const std::vector<at::Tensor> found = outputs(model, step.error);
    if (step.error.empty() && step.reference_error.empty()) {
      step.difference = compare_outputs(found, expected);
    }
  }
  return comparisons;
}

}  // namespace warpfuse::host
