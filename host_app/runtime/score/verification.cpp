#include "runtime/score/verification.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>

#include "runtime/errors.h"

namespace warpfuse::host {
namespace {

// One sequence of a language model, step by step.
class Decoder {
 public:
  explicit Decoder(const LanguageModel& model)
      : model_(model), cache_(model.make_cache(1, model.spec().context)) {}

  // Starts a new sequence. Logits [V] of its last position.
  at::Tensor prefill(const std::vector<int64_t>& ids) {
    start(ids);
    return model_.prefill(row(ids), positions(), row({length_ - 1}).squeeze(0), cache()).squeeze(0);
  }
  // Appends one token. Logits [V].
  at::Tensor decode(int64_t id) {
    model_.require_known({id});
    const int64_t position = length_++;
    return model_.decode(row({id}), row({position}), cache()).squeeze(0);
  }
  // Starts a new sequence. Logits [T, V] of all positions.
  at::Tensor forward(const std::vector<int64_t>& ids) {
    start(ids);
    return model_.forward(row(ids), positions(), cache()).squeeze(0);
  }
  bool is_full() const { return length_ == model_.spec().context; }

 private:
  void start(const std::vector<int64_t>& ids) {
    length_ = static_cast<int64_t>(ids.size());
    model_.require_fits(length_);
    model_.require_known(ids);
  }
  at::Tensor row(const std::vector<int64_t>& values) const {
    return at::tensor(values, at::kLong).unsqueeze(0).to(model_.device());
  }
  at::Tensor positions() const {
    return at::arange(length_, at::TensorOptions(at::kLong).device(model_.device())).unsqueeze(0);
  }
  Cache cache() const { return cache_.slots(model_.slots_for(length_)); }

  const LanguageModel& model_;
  Cache cache_;
  int64_t length_ = 0;
};

std::vector<double> to_doubles(const at::Tensor& logits) {
  const at::Tensor values = logits.to(at::Device(at::kCPU), at::kDouble).contiguous();
  const auto* data = values.const_data_ptr<double>();
  return {data, data + values.numel()};
}

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

at::Tensor random_tensor(const InputSpec& input, at::Generator& generator, c10::Device device) {
  // Made on the CPU, so that every device gets the same numbers.
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

std::optional<int64_t> argmax(const std::vector<double>& logits) {
  if (std::ranges::any_of(logits, [](double logit) { return std::isnan(logit); })) {
    return std::nullopt;
  }
  return std::ranges::max_element(logits) - logits.begin();
}

std::vector<StepComparison> compare_language_models(
    const LanguageModel& tested_model, const LanguageModel& reference_model,
    const std::vector<std::vector<int64_t>>& prompts, int64_t steps, double tolerance) {
  Decoder model(tested_model);
  Decoder reference(reference_model);
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
      if (!next || step + 1 == steps || reference.is_full() || model.is_full()) {
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
    std::vector<at::Tensor> tensors;
    tensors.reserve(inputs.size());
    for (const InputSpec& input : inputs) {
      tensors.push_back(random_tensor(input, generator, device));
    }
    const auto outputs = [&](torch::jit::Module& module) {
      at::manual_seed(seed + static_cast<uint64_t>(step));  // for the module's own random numbers
      return outputs_of(module, tensors);
    };
    comparisons.push_back({.name = fmt::format("draw {}", step),
                           .difference = compare_outputs(outputs(model), outputs(reference)),
                           .greedy = {}});
  }
  return comparisons;
}

}  // namespace warpfuse::host
