#include "bench/inputs.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <cmath>

#include "bench/dropout.h"
#include "bench/linear_dropout.h"
#include "bench/logprob.h"
#include "bench/reference.h"
#include "bench/rules.h"

namespace warpfuse::host::bench {
namespace {

constexpr double kHiddenShare = 0.2;  // of a boolean mask
constexpr uint64_t kSeed = 20;
constexpr int64_t kAlignment = 512;  // bytes, as ATen's allocator gives

// `count` tensors of one shape out of one allocation, each aligned as if it were allocated alone.
std::vector<at::Tensor> make_tensors(size_t count, at::IntArrayRef sizes,
                                     const at::TensorOptions& options) {
  const int64_t elements = c10::multiply_integers(sizes);
  const auto step = kAlignment / static_cast<int64_t>(options.dtype().itemsize());
  const int64_t padded = (elements + step - 1) / step * step;
  const at::Tensor all = at::empty({static_cast<int64_t>(count), padded}, options);
  std::vector<at::Tensor> tensors;
  tensors.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    tensors.push_back(all.select(0, static_cast<int64_t>(i)).narrow(0, 0, elements).view(sizes));
  }
  return tensors;
}

void fill_randomly(const at::Tensor& tensor, const InputSet&) { tensor.normal_(); }

// Gives each set a tensor of its own that `fill` has filled; it may look at the rest of the set.
template <typename Member, typename Fill>
void add_tensors(std::vector<InputSet>& inputs, Member InputSet::* member, at::IntArrayRef sizes,
                 const at::TensorOptions& options, const Fill& fill) {
  const std::vector<at::Tensor> tensors = make_tensors(inputs.size(), sizes, options);
  for (size_t i = 0; i < inputs.size(); ++i) {
    fill(tensors[i], inputs[i]);
    inputs[i].*member = tensors[i];
  }
}

// What hides keys in the same way in all sets: key_lengths, query_positions, hidden.
void add_rules(InputSet& set, const Case& c, const at::TensorOptions& options) {
  const Scores scores = scores_of(c.shape);
  const at::TensorOptions index = options.dtype(at::kLong);
  const auto on_device = [&](const std::vector<int64_t>& values) {
    return at::tensor(values, at::kLong).to(options.device());
  };
  const at::Tensor keys = at::arange(scores.keys, index);
  at::Tensor hidden;  // [batch or 1, queries or 1, keys]
  if (c.mask == Mask::causal) {
    hidden = keys.gt(at::arange(scores.queries, index).unsqueeze(1)).unsqueeze(0);
  } else if (c.mask == Mask::padding) {
    const at::Tensor lengths = on_device(key_lengths_of(c.shape));
    set.key_lengths = lengths;
    hidden = keys.ge(lengths.view({-1, 1, 1}));
  } else if (c.mask == Mask::positions) {
    const at::Tensor row = on_device(query_positions_of(c.shape));
    const at::Tensor positions = row.expand({scores.batch, scores.queries}).contiguous();
    set.query_positions = positions;
    hidden = keys.gt(positions.unsqueeze(-1));
  } else {
    return;
  }
  const size_t rank = c.shape.sizes.size();
  set.hidden = rank == 4 ? hidden.unsqueeze(1) : rank == 2 ? hidden.squeeze(0) : hidden;
}

void add_masks(std::vector<InputSet>& inputs, const Case& c, const at::TensorOptions& options) {
  const Scores scores = scores_of(c.shape);
  const std::vector<int64_t> square{scores.queries, scores.keys};
  if (c.mask == Mask::boolean) {
    const at::TensorOptions boolean = options.dtype(at::kBool);
    add_tensors(inputs, &InputSet::hidden, square, boolean,
                [](const at::Tensor& hidden, const InputSet&) { hidden.bernoulli_(kHiddenShare); });
    add_tensors(
        inputs, &InputSet::attn_mask, square, boolean,
        [](const at::Tensor& mask, const InputSet& set) { mask.copy_(set.hidden.logical_not()); });
  } else if (c.mask == Mask::additive) {
    add_tensors(inputs, &InputSet::attn_mask, square, options, fill_randomly);
  } else {
    InputSet rules;
    add_rules(rules, c, options);
    for (InputSet& set : inputs) {
      set = rules;
    }
  }
}

void add_linear(std::vector<InputSet>& inputs, const Case& c, const at::TensorOptions& options) {
  const LinearSizes sizes = linear_sizes_of(c.shape);
  // So that the logits are spread as much as scores are elsewhere.
  const double spread = 1 / std::sqrt(static_cast<double>(sizes.in));
  add_tensors(inputs, &InputSet::input, {sizes.rows, sizes.in}, options, fill_randomly);
  add_tensors(inputs, &InputSet::weight, {sizes.out, sizes.in}, options,
              [spread](const at::Tensor& weight, const InputSet&) { weight.normal_(0, spread); });
  add_tensors(inputs, &InputSet::bias, {sizes.out}, options, fill_randomly);
  if (c.direction != Direction::forward) {
    add_tensors(inputs, &InputSet::grad_output, {sizes.rows, sizes.out}, options, fill_randomly);
  }
}

// Random scores, and what a backward of a softmax is given for them.
void add_backward(std::vector<InputSet>& inputs, const Case& c, const at::TensorOptions& options) {
  add_tensors(inputs, &InputSet::output, c.shape.sizes, options, fill_randomly);
  for (size_t i = 0; i < inputs.size(); ++i) {
    InputSet& set = inputs[i];
    if (has_dropout(c.op)) {
      add_dropout_state(set, c, static_cast<int64_t>(i));
    }
    InputSet forward = set;
    forward.scores = set.output;
    replace_by_forward(saved_forward(c), forward);
  }
  add_tensors(inputs, &InputSet::grad_output, c.shape.sizes, options, fill_randomly);
}

}  // namespace

std::vector<InputSet> make_inputs(const Case& c, c10::Device device, int64_t sets) {
  at::manual_seed(kSeed);
  const auto options = at::TensorOptions().device(device).dtype(c.dtype);
  std::vector<InputSet> inputs(static_cast<size_t>(sets));
  if (c.op == Operator::scaled_masked_softmax) {
    add_masks(inputs, c, options);
  }
  if (c.op == Operator::linear_dropout_softmax) {
    add_linear(inputs, c, options);
    return inputs;
  }
  const bool logprob = c.op == Operator::fused_logprob;
  if (logprob || c.direction == Direction::forward) {
    add_tensors(inputs, &InputSet::scores, c.shape.sizes, options, fill_randomly);
    if (logprob) {
      add_logprob_inputs(inputs, c);
    }
    return inputs;
  }
  add_backward(inputs, c, options);
  return inputs;
}

}  // namespace warpfuse::host::bench
