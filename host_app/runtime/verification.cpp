#include "runtime/verification.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>

#include "runtime/errors.h"

namespace warpfuse::host {
namespace {

double largest_magnitude(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) {
    largest = std::isfinite(value) ? std::max(largest, std::abs(value)) : largest;
  }
  return largest;
}

// Compares one row of logits, [V].
void add_logits(StepComparison& step, const at::Tensor& logits, const at::Tensor& reference_logits,
                double tolerance) {
  step.difference.include(difference_between(logits, reference_logits));
  ++step.greedy.rows;
  const std::vector<double> expected = to_doubles(reference_logits);
  const std::optional<int64_t> token = argmax(to_doubles(logits));
  const std::optional<int64_t> expected_token = argmax(expected);
  if (!token || !expected_token) {
    return;  // a NaN agrees with nothing
  }
  if (*token == *expected_token) {
    ++step.greedy.equal;
  } else if (*token < static_cast<int64_t>(expected.size())) {
    const double lead = expected[*expected_token] - expected[*token];
    if (lead <= tolerance * largest_magnitude(expected)) {
      ++step.greedy.ties;
    }
  }
}

std::string step_name(int64_t step) {
  return step == 0 ? "prefill" : fmt::format("decode {}", step);
}

at::Tensor draw(const InputSpec& input, at::Generator& generator, c10::Device device) {
  // Drawn on the CPU, so that every device gets the same numbers.
  const at::TensorOptions options = at::TensorOptions().device(at::kCPU);
  const at::Tensor values =
      c10::isFloatingType(input.dtype)
          ? at::randn(input.shape, generator, options.dtype(at::kFloat)) * input.standard_deviation
          : at::randint(input.low, input.high, input.shape, generator, options.dtype(at::kLong));
  return values.to(device, input.dtype);
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

std::vector<at::Tensor> outputs_of(torch::jit::Module& module,
                                   const std::vector<at::Tensor>& inputs) {
  // Copies, since a module may write into its inputs.
  std::vector<c10::IValue> arguments;
  arguments.reserve(inputs.size());
  for (const at::Tensor& input : inputs) {
    arguments.emplace_back(input.clone());
  }
  std::vector<at::Tensor> tensors;
  collect_tensors(
      translating_errors(ExitCode::model, "forward", [&] { return module.forward(arguments); }),
      tensors);
  return tensors;
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

std::vector<StepComparison> compare_language_models(
    Decoder& model, Decoder& reference, const std::vector<std::vector<int64_t>>& prompts,
    int64_t steps, double tolerance) {
  std::vector<StepComparison> comparisons;
  comparisons.reserve(steps + 1);
  for (int64_t step = 0; step < steps; ++step) {
    comparisons.push_back({.name = step_name(step), .difference = {}, .greedy = {}});
  }
  StepComparison whole{.name = "forward", .difference = {}, .greedy = {}};
  for (const std::vector<int64_t>& prompt : prompts) {
    std::vector<int64_t> sequence = prompt;
    at::Tensor logits = model.prefill(prompt);
    at::Tensor expected = reference.prefill(prompt);
    for (int64_t step = 0;; ++step) {
      add_logits(comparisons[step], logits, expected, tolerance);
      const std::optional<int64_t> next = argmax(to_doubles(expected));
      if (!next || step + 1 == steps || reference.length() == reference.context() ||
          model.length() == model.context()) {
        break;
      }
      sequence.push_back(*next);
      logits = model.decode(*next);
      expected = reference.decode(*next);
    }
    whole.difference.include(
        difference_between(model.forward(sequence), reference.forward(sequence)));
  }
  std::erase_if(comparisons, [](const StepComparison& step) { return step.greedy.rows == 0; });
  comparisons.push_back(std::move(whole));
  return comparisons;
}

std::vector<StepComparison> compare_modules(torch::jit::Module& model,
                                            torch::jit::Module& reference,
                                            const std::vector<InputSpec>& inputs,
                                            c10::Device device, int64_t steps, uint64_t seed) {
  const c10::InferenceMode inference;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  std::vector<StepComparison> comparisons;
  comparisons.reserve(steps);
  for (int64_t step = 1; step <= steps; ++step) {
    std::vector<at::Tensor> drawn;
    drawn.reserve(inputs.size());
    for (const InputSpec& input : inputs) {
      drawn.push_back(draw(input, generator, device));
    }
    const auto outputs = [&](torch::jit::Module& module) {
      at::manual_seed(seed + static_cast<uint64_t>(step));  // of what a module draws itself
      return outputs_of(module, drawn);
    };
    comparisons.push_back({.name = fmt::format("draw {}", step),
                           .difference = compare_outputs(outputs(model), outputs(reference)),
                           .greedy = {}});
  }
  return comparisons;
}

}  // namespace warpfuse::host
