#include <algorithm>
#include <iterator>
#include <utility>

#include "passes.h"
#include "prover.h"

namespace warpfuse::rewriting {

namespace jit = torch::jit;

// Downwards to [batch, queries, heads * channels].
bool Prover::take_output() {
  Layout layout{.dims = {images_[0].dims[0], images_[0].dims[1], grids_[0].dims[1]}};
  jit::Value* output = sum_.result;
  const auto only_user = [&](jit::Value* value) -> jit::Node* {
    const bool is_only = value->uses().size() == 1 && value->uses()[0].offset == 0;
    jit::Node* user = is_only ? value->uses()[0].user : nullptr;
    return user != nullptr && user->owningBlock() == value->node()->owningBlock() ? user : nullptr;
  };
  while (!has_roles(layout, {{Role::batch}, {Role::query}, {Role::head, Role::channel}})) {
    if (output->uses().size() > 1) {
      return stop("the sum has another use");
    }
    jit::Node* user = only_user(output);
    const std::optional<Step> step =
        user != nullptr && user->outputs().size() == 1 ? step_of(user->output()) : std::nullopt;
    if (!step || step->node != user || !apply(*step, layout, facts_, sizes_) ||
        layout.doubled != 0 || layout.softmax != nullptr) {
      return stop("the sum does not become [batch, queries, heads * channels]");
    }
    output = user->output();
    read_.push_back(output);
  }
  jit::Node* user = only_user(output);
  if (user != nullptr && user->kind() == jit::aten::contiguous) {
    output = user->output();
  }
  deform_.output = output;
  return true;
}

// The operator gives the value's dtype. Half precision that is widened before and narrowed behind
// is the operator's own way.
bool Prover::accepts_dtypes() {
  const std::optional<c10::ScalarType> value = facts_.of(deform_.value.tensor).dtype;
  const std::optional<c10::ScalarType> weights = facts_.of(deform_.weights.tensor).dtype;
  if (!value || !weights) {
    return stop("the dtypes of value and weights are unknown");
  }
  if (*value != *weights) {
    return stop("value and weights have other dtypes");
  }
  jit::Value* output = deform_.output;
  jit::Node* user = output->uses().size() == 1 ? output->uses()[0].user : nullptr;
  if (user == nullptr || !is_cast(facts_, user) ||
      user->owningBlock() != output->node()->owningBlock()) {
    return true;
  }
  jit::Node* widening = deform_.value.tensor->node();
  const std::optional<c10::ScalarType>& after = facts_.of(user->output()).dtype;
  const bool is_narrowed = is_cast(facts_, widening) && value == c10::kFloat && after &&
                           facts_.of(widening->input(0)).dtype == after &&
                           (after == c10::kHalf || after == c10::kBFloat16);
  if (is_narrowed) {
    deform_.value.tensor = widening->input(0);
    read_.push_back(deform_.value.tensor);
  }
  if (is_narrowed || after == value) {
    deform_.output = user->output();
  }
  return true;
}

bool Prover::is_never_written() {
  for (const Operand* operand : {&deform_.value, &deform_.locations, &deform_.weights}) {
    read_.push_back(operand->tensor);
  }
  for (const jit::Node* node : steps_) {
    std::ranges::copy(node->outputs(), std::back_inserter(read_));
  }
  for (const jit::Node* sampler : deform_.samplers) {
    read_.push_back(sampler->output());
  }
  for (const WeightedSamples& term : sum_.terms) {
    for (const Step& step : term.steps) {
      read_.push_back(step.node->output());
    }
    read_.insert(read_.end(), {term.product->output(), term.sum->output()});
  }
  read_.insert(read_.end(), {sum_.result, deform_.output});
  return std::ranges::none_of(read_,
                              [&](const jit::Value* value) { return writes_.reach(value); }) ||
         stop("written to in place");
}

// Sizes that ATen's operators ask for, and an error otherwise: this operator asks for them too, or
// a view does.
bool Prover::accepts_sizes() {
  Equalities asked;
  Operand* const operands[] = {&deform_.value, &deform_.locations, &deform_.weights};
  for (Operand* operand : operands) {
    learn_from_broadcast(operand->tensor, static_cast<int64_t>(operand->dims.size()), facts_,
                         asked);
  }
  for (const Role role : {Role::batch, Role::head, Role::query, Role::level, Role::point}) {
    std::optional<Integer> first;
    for (Operand* operand : operands) {
      for (const std::vector<Axis>& dim : operand->dims) {
        for (const Axis& axis : dim) {
          if (axis.role == role && first) {
            asked.equate(*first, axis.size);
          } else if (axis.role == role) {
            first = axis.size;
          }
        }
      }
    }
  }
  for (Operand* operand : operands) {
    for (size_t i = 0; i < operand->dims.size(); ++i) {
      const Axis& axis = operand->dims[i][0];
      const std::optional<int64_t> size = sizes_.resolved(axis.size).known();
      if (size && operand->dims[i].size() == 1 && !asked.resolved(axis.size).known()) {
        operand->checked_sizes.emplace_back(i, *size);
        asked.equate(axis.size, {0, *size});
      }
    }
  }
  const auto& taken = sizes_.taken();
  return std::ranges::all_of(taken,
                             [&](const std::pair<Integer, Integer>& sizes) {
                               return asked.resolved(sizes.first) == asked.resolved(sizes.second);
                             }) ||
         stop("a size in it is that of another tensor");
}

}  // namespace warpfuse::rewriting
