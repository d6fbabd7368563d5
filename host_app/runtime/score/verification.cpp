#include "runtime/score/verification.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/errors.h"

namespace warpfuse::host {
namespace {

// Elements that are compared at a time, since they take several times as much memory as doubles.
constexpr int64_t kBlock = 16'777'216;

// The larger; NaN if either is, which std::max would drop on one side.
double worse(double a, double b) { return std::isnan(b) || b > a ? b : a; }

double smallest_normal(c10::ScalarType dtype) {
  return dtype == at::kHalf ? double{std::numeric_limits<c10::Half>::min()}
                            : double{std::numeric_limits<float>::min()};
}

// Of two tensors [rows, columns] that are not empty.
Difference difference_of_rows(const at::Tensor& value, const at::Tensor& reference) {
  const at::Tensor a = value.to(at::Device(at::kCPU), at::kDouble);
  const at::Tensor b = reference.to(at::Device(at::kCPU), at::kDouble);
  const at::Tensor zero = at::zeros_like(a);
  const at::Tensor distance = at::where(a.eq(b), zero, (a - b).abs());  // inf - inf would be NaN
  const at::Tensor magnitude = at::where(b.isfinite(), b.abs(), zero).amax(1);
  const double least =
      std::max(smallest_normal(value.scalar_type()), smallest_normal(reference.scalar_type()));
  const at::Tensor relative = distance.amax(1) / magnitude.clamp_min(least);
  // amax() gives NaN if there is one; abs() drops its sign, which would be printed.
  return {std::abs(distance.max().item<double>()), std::abs(relative.max().item<double>())};
}

// One sequence of a language model, step by step.
class Decoder {
 public:
  explicit Decoder(const LanguageModel& model)
      : model_(model), cache_(model.make_cache(1, model.spec().context)) {}

  // Starts a new sequence. Logits [V] of its last position.
  at::Tensor prefill(const std::vector<int64_t>& ids) {
    const at::Tensor tokens = start(ids);
    return model_.prefill(tokens, positions_of(tokens), row({length_ - 1}).squeeze(0), cache())
        .squeeze(0);
  }
  // Appends one token. Logits [V].
  at::Tensor decode(int64_t id) {
    model_.require_known({id});
    const int64_t position = length_++;
    return model_.decode(row({id}), row({position}), cache()).squeeze(0);
  }
  // The model's own choice after that token.
  int64_t next(int64_t id) {
    return model_.next(row({id}), row({length_ - 1}), cache()).item<int64_t>();
  }
  // Starts a new sequence. Logits [T, V] of all positions.
  at::Tensor forward(const std::vector<int64_t>& ids) {
    const at::Tensor tokens = start(ids);
    return model_.forward(tokens, positions_of(tokens), cache()).squeeze(0);
  }
  bool is_full() const { return length_ == model_.spec().context; }

 private:
  at::Tensor start(const std::vector<int64_t>& ids) {
    length_ = static_cast<int64_t>(ids.size());
    model_.require_fits(length_);
    model_.require_known(ids);
    return row(ids);
  }
  at::Tensor row(const std::vector<int64_t>& values) const {
    return at::tensor(values, at::kLong).unsqueeze(0).to(model_.device());
  }
  Cache cache() const { return cache_.slots(model_.slots_for(length_)); }

  const LanguageModel& model_;
  Cache cache_;
  int64_t length_ = 0;
};

double largest_magnitude(const at::Tensor& values) {
  return at::where(values.isfinite(), values.abs(), 0).max().item<double>();
}

// Compares a greedy choice with the largest of the reference's logits [V].
void add_choice(StepComparison& step, std::optional<int64_t> token,
                const at::Tensor& reference_logits, double tolerance) {
  ++step.greedy.rows;
  const at::Tensor expected = reference_logits.to(at::Device(at::kCPU), at::kDouble);
  const std::optional<int64_t> expected_token = greedy_token(expected);
  if (!token || !expected_token) {
    return;  // a NaN agrees with nothing
  }
  if (*token == *expected_token) {
    ++step.greedy.equal;
  } else if (*token >= 0 && *token < expected.numel()) {
    const auto lead = (expected[*expected_token] - expected[*token]).item<double>();
    if (lead <= tolerance * largest_magnitude(expected)) {
      ++step.greedy.ties;
    }
  }
}

// Compares one row of logits, [V].
void add_logits(StepComparison& step, const at::Tensor& logits, const at::Tensor& reference_logits,
                double tolerance) {
  step.difference.include(difference_between(logits, reference_logits));
  add_choice(step, greedy_token(logits), reference_logits, tolerance);
}

std::string step_name(int64_t step) {
  return step == 0 ? "prefill" : fmt::format("decode {}", step);
}

}  // namespace

void Difference::include(const Difference& other) {
  largest = worse(largest, other.largest);
  relative = worse(relative, other.relative);
}

Difference difference_between(const at::Tensor& value, const at::Tensor& reference) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (value.sizes() != reference.sizes()) {
    return {kInfinity, kInfinity};
  }
  if (value.numel() == 0) {
    return {};
  }
  const int64_t columns = value.dim() == 0 ? 1 : value.size(-1);
  const int64_t block = std::max<int64_t>(kBlock / columns, 1);
  const std::vector<at::Tensor> values = value.reshape({-1, columns}).split(block);
  const std::vector<at::Tensor> references = reference.reshape({-1, columns}).split(block);
  Difference difference;
  for (size_t i = 0; i < values.size(); ++i) {
    difference.include(difference_of_rows(values[i], references[i]));
  }
  return difference;
}

double default_tolerance(c10::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return 1e-2;
    case at::kBFloat16:
      return 8e-2;
    case at::kDouble:
      return 1e-9;
    default:
      return 5e-5;
  }
}

std::optional<int64_t> greedy_token(const at::Tensor& logits) {
  const auto [largest, id] = logits.to(at::kCPU).max(0);  // a NaN, where there is one
  return std::isnan(largest.item<double>()) ? std::nullopt : std::optional(id.item<int64_t>());
}

std::vector<StepComparison> compare_language_models(
    const LanguageModel& tested_model, const LanguageModel& reference_model,
    const std::vector<std::vector<int64_t>>& prompts, int64_t steps, double tolerance) {
  Decoder model(tested_model);
  Decoder reference(reference_model);
  std::vector<StepComparison> comparisons;
  comparisons.reserve(steps + 1);
  for (int64_t step = 0; step < steps; ++step) {
    comparisons.push_back({.name = step_name(step)});
  }
  StepComparison whole{.name = "forward"}, choices{.name = "next"};
  for (const std::vector<int64_t>& prompt : prompts) {
    std::vector<int64_t> sequence = prompt;
    at::Tensor logits = model.prefill(prompt);
    at::Tensor expected = reference.prefill(prompt);
    for (int64_t step = 0;; ++step) {
      add_logits(comparisons[step], logits, expected, tolerance);
      const std::optional<int64_t> next = greedy_token(expected);
      if (!next || step + 1 == steps || reference.is_full() || model.is_full()) {
        break;
      }
      sequence.push_back(*next);
      logits = model.decode(*next);
      expected = reference.decode(*next);
      if (tested_model.has_next()) {
        add_choice(choices, model.next(*next), expected, tolerance);
      }
    }
    whole.difference.include(
        difference_between(model.forward(sequence), reference.forward(sequence)));
  }
  comparisons.push_back(std::move(choices));
  std::erase_if(comparisons, [](const StepComparison& step) { return step.greedy.rows == 0; });
  comparisons.push_back(std::move(whole));
  return comparisons;
}

}  // namespace warpfuse::host
