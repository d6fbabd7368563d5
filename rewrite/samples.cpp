#include "samples.h"

#include <algorithm>
#include <optional>

#include "passes.h"

namespace warpfuse::rewriting {
namespace {

namespace jit = torch::jit;

constexpr const char* kNotSummed = "its samples are not weighted and summed over levels and points";
constexpr const char* kOtherUse = "the samples have another use";

bool is_sampler(const jit::Node* node) {
  return node->kind() == jit::aten::grid_sampler || node->kind() == jit::aten::grid_sampler_2d;
}

bool is_join(const jit::Node* node) {
  return node->kind() == jit::aten::stack || node->kind() == jit::aten::cat ||
         node->kind() == jit::aten::concat || node->kind() == jit::aten::concatenate;
}

bool only_rearranges(const jit::Node* node) {
  return node->kind() == jit::aten::flatten || node->kind() == jit::aten::view ||
         node->kind() == jit::aten::reshape || node->kind() == jit::aten::transpose ||
         node->kind() == jit::aten::permute || node->kind() == jit::aten::contiguous;
}

bool is_partial_sum(const jit::Node* node) {
  const bool adds_tensors = node->kind() == jit::aten::add && node->inputs().size() == 3;
  return node->kind() == jit::aten::sum || adds_tensors;
}

// An addition of two sums, or of a sum and 0.
bool adds_sums(const jit::Node* node, const Facts& facts) {
  return node->kind() == jit::aten::add &&
         std::ranges::all_of(node->inputs().slice(0, 2), [&](const jit::Value* operand) {
           return is_partial_sum(operand->node()) || facts.number(operand) == 0.0;
         });
}

// The sum that samples end in, downwards from `value`; null where there is none.
jit::Value* sum_of(jit::Value* value, const Facts& facts) {
  jit::Value* result = is_partial_sum(value->node()) ? value : nullptr;
  for (const jit::Use& use : value->uses()) {
    jit::Node* user = use.user;
    const bool goes_on = result != nullptr
                             ? adds_sums(user, facts)
                             : user->kind() == jit::prim::ListConstruct || is_join(user) ||
                                   only_rearranges(user) || user->kind() == jit::aten::mul ||
                                   user->kind() == jit::aten::sum;
    if (goes_on && user->owningBlock() == value->node()->owningBlock()) {
      if (jit::Value* found = sum_of(user->output(), facts)) {
        return found;
      }
    }
  }
  return result;
}

const jit::Value* list_of(const jit::Value* samples) {
  for (const jit::Use& use : samples->uses()) {
    if (use.user->kind() == jit::prim::ListConstruct) {
      return use.user->output();
    }
  }
  return nullptr;
}

bool is_used_by_one(const jit::Value* value) { return value->uses().size() == 1; }

// The samplers, join and views that made one factor of the product.
bool take_factor(jit::Value* factor, WeightedSamples& samples, const Facts& facts) {
  jit::Node* node = factor->node();
  while (only_rearranges(node)) {
    samples.steps.insert(samples.steps.begin(), Step{node, -1});
    node = node->input(0)->node();
  }
  if (is_join(node)) {
    samples.join = node;
    const auto joined = facts.elements(node->input(0));
    if (!joined) {
      return false;
    }
    for (jit::Value* each : *joined) {
      samples.samplers.push_back(each->node());
    }
  } else {
    samples.samplers.push_back(node);
  }
  return std::ranges::all_of(samples.samplers, is_sampler);
}

bool have_one_use(const WeightedSamples& samples) {
  return std::ranges::all_of(
             samples.samplers,
             [](const jit::Node* node) { return is_used_by_one(node->output()); }) &&
         std::ranges::all_of(
             samples.steps, [](const Step& step) { return is_used_by_one(step.node->output()); }) &&
         (samples.join == nullptr ||
          (is_used_by_one(samples.join->output()) && is_used_by_one(samples.join->input(0)))) &&
         is_used_by_one(samples.product->output());
}

// The terms that a sum adds up. Nothing, with the reason, where one is something else.
bool take_terms(jit::Value* value, SampledSum& sum, const Facts& facts) {
  jit::Node* node = value->node();
  if (node->kind() == jit::aten::add) {
    return facts.number(node->input(2)) == 1.0 &&
           std::ranges::all_of(node->inputs().slice(0, 2), [&](jit::Value* operand) {
             if (facts.number(operand) == 0.0) {
               return true;
             }
             if (!is_used_by_one(operand)) {
               sum.note = kOtherUse;
               return false;
             }
             return take_terms(operand, sum, facts);
           });
  }
  jit::Node* product = node->kind() == jit::aten::sum ? node->input(0)->node() : nullptr;
  if (product == nullptr || product->kind() != jit::aten::mul) {
    return false;
  }
  for (const size_t i : {0, 1}) {
    WeightedSamples samples;
    samples.weights = product->input(1 - i);
    samples.product = product;
    samples.sum = node;
    if (take_factor(product->input(i), samples, facts)) {
      if (!have_one_use(samples)) {
        sum.note = kOtherUse;
        return false;
      }
      sum.terms.push_back(std::move(samples));
      return true;
    }
  }
  return false;
}

}  // namespace

std::vector<SampledSum> sampled_sums(jit::Graph& graph, Facts& facts) {
  std::vector<SampledSum> sums;
  std::vector<const jit::Value*> ends;  // of each: its sum, or else a list of samples
  for_each_node(graph.block(), [&](jit::Node* node) {
    if (!is_sampler(node)) {
      return;
    }
    jit::Value* result = sum_of(node->output(), facts);
    const jit::Value* end = result != nullptr ? result : list_of(node->output());
    const auto same = std::ranges::find(ends, end);
    if (end != nullptr && same != ends.end()) {
      sums[same - ends.begin()].samplers.push_back(node);
    } else {
      sums.push_back({.samplers = {node}, .terms = {}, .result = result, .note = {}});
      ends.push_back(end);
    }
  });
  for (SampledSum& sum : sums) {
    if (sum.result == nullptr || !take_terms(sum.result, sum, facts)) {
      sum.terms.clear();
      sum.note = sum.note.empty() ? kNotSummed : sum.note;
    }
  }
  return sums;
}

}  // namespace warpfuse::rewriting
