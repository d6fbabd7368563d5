#include "bench/logprob.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/gather_backward.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/nll_loss_backward.h>
#include <ATen/ops/nll_loss_forward.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <warpfuse/dispatch.h>
#include <warpfuse/fused_logprob.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>

#include "bench/reference.h"

namespace warpfuse::host::bench {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

constexpr int64_t kIgnored = -100;
constexpr const char* kForm = "logprob";
constexpr int64_t kPieceElements = int64_t{16} * 1024 * 1024;  // 128 MiB in double precision
constexpr int64_t kNoReduction = 0;                            // at::Reduction::None

int64_t rows_of(const Case& c) { return c.shape.elements() / c.shape.columns(); }

c10::ScalarType result_dtype(const Case& c) {
  return c.dtype == at::kDouble ? at::kDouble : at::kFloat;
}

// Calls `work` with ranges of rows that are about kPieceElements together.
template <typename Work>
void for_each_piece(const Case& c, const Work& work) {
  const int64_t rows = rows_of(c);
  const int64_t step = std::max<int64_t>(kPieceElements / c.shape.columns(), 1);
  for (int64_t start = 0; start < rows; start += step) {
    work(start, std::min(step, rows - start));
  }
}

// --- the plugin -------------------------------------------------------------------------------

at::Tensor warpfuse_forward(const InputSet& in) {
  return fused_logprob(in.scores, in.targets, kIgnored);
}

at::Tensor warpfuse_backward(const InputSet& in) {
  static const auto op = detail::find_operator<at::Tensor(
      const at::Tensor&, const at::Tensor&, const at::Tensor&, const OptionalTensor&,
      const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, int64_t, double, int64_t,
      c10::string_view)>("warpfuse::_fused_logprob_backward");
  return op.call(in.scores, in.targets, in.statistics, std::nullopt, in.grad_output, std::nullopt,
                 std::nullopt, kIgnored, 1.0, 0, kForm);
}

at::Tensor warpfuse_in_place(const InputSet& in) {
  static const auto op = detail::find_operator<void(
      const at::Tensor&, const at::Tensor&, const at::Tensor&, const OptionalTensor&,
      const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, int64_t, double, int64_t,
      c10::string_view)>("warpfuse::_fused_logprob_backward_");
  op.call(in.scores, in.targets, in.statistics, std::nullopt, in.grad_output, std::nullopt,
          std::nullopt, kIgnored, 1.0, 0, kForm);
  return in.scores;
}

// The set with the statistics of a forward that runs now.
InputSet after_forward(const InputSet& in) {
  static const auto op =
      detail::find_operator<std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>(
          const at::Tensor&, const at::Tensor&, int64_t, double, bool, int64_t, c10::string_view)>(
          "warpfuse::_fused_logprob");
  InputSet out = in;
  out.statistics =
      std::get<3>(op.call(in.scores, in.targets, kIgnored, 1.0, /*check_targets=*/false, 0, kForm));
  return out;
}

// --- ATen -------------------------------------------------------------------------------------

at::Tensor aten_forward(const InputSet& in) {
  return at::gather(at::log_softmax(in.scores, -1), -1, in.targets.unsqueeze(-1)).squeeze(-1);
}

at::Tensor aten_backward_of(const InputSet& in, const at::Tensor& log_probs) {
  const at::Tensor grad =
      at::gather_backward(in.grad_rounded.unsqueeze(-1), log_probs, -1, in.targets.unsqueeze(-1),
                          /*sparse_grad=*/false);
  return at::_log_softmax_backward_data(grad, log_probs, -1, log_probs.scalar_type());
}

at::Tensor aten_backward(const InputSet& in) { return aten_backward_of(in, in.output); }

at::Tensor aten_both(const InputSet& in) {
  const at::Tensor log_probs = at::log_softmax(in.scores, -1);
  // Made as a trainer would, and not part of the result.
  at::gather(log_probs, -1, in.targets.unsqueeze(-1));
  return aten_backward_of(in, log_probs);
}

// [rows, V] and [rows], as nll_loss takes them.
at::Tensor as_rows(const at::Tensor& logits) { return logits.flatten(0, -2); }

at::Tensor cross_entropy_of(const at::Tensor& log_probs, const InputSet& in) {
  return std::get<0>(at::nll_loss_forward(as_rows(log_probs), in.targets.flatten(), std::nullopt,
                                          kNoReduction, kIgnored));
}

// The loss is -log p, and so is its gradient's sign: -g here gives g * d log p there.
at::Tensor cross_entropy_backward_of(const InputSet& in, const at::Tensor& log_probs) {
  const at::Tensor grad =
      at::nll_loss_backward(in.grad_negated.flatten(), as_rows(log_probs), in.targets.flatten(),
                            std::nullopt, kNoReduction, kIgnored, in.total_weight);
  return at::_log_softmax_backward_data(grad.view_as(log_probs), log_probs, -1,
                                        log_probs.scalar_type());
}

at::Tensor cross_entropy_forward(const InputSet& in) {
  // Negated for the comparison alone would be one kernel more: the check knows of the sign.
  return cross_entropy_of(at::log_softmax(in.scores, -1), in).view(in.targets.sizes());
}

at::Tensor cross_entropy_backward(const InputSet& in) {
  return cross_entropy_backward_of(in, in.output);
}

at::Tensor cross_entropy_both(const InputSet& in) {
  const at::Tensor log_probs = at::log_softmax(in.scores, -1);
  cross_entropy_of(log_probs, in);
  return cross_entropy_backward_of(in, log_probs);
}

}  // namespace

void add_logprob_inputs(std::vector<InputSet>& inputs, const Case& c) {
  const std::vector<int64_t> leading(c.shape.sizes.begin(), c.shape.sizes.end() - 1);
  const int64_t rows = rows_of(c);
  for (InputSet& set : inputs) {
    const at::TensorOptions options = set.scores.options();
    set.targets = at::randint(c.shape.columns(), leading, options.dtype(at::kLong));
    if (c.direction == Direction::forward) {
      continue;
    }
    // Representable in the dtype, so that all variants are given the same gradient.
    set.grad_rounded = at::randn(leading, options);
    set.grad_negated = -set.grad_rounded;
    set.grad_output = set.grad_rounded.to(result_dtype(c));
    set.total_weight = at::empty({}, options).fill_(static_cast<double>(rows));
    if (c.direction == Direction::both) {
      continue;
    }
    set.output = at::empty_like(set.scores);
    std::vector<int64_t> pairs = leading;
    pairs.push_back(2);
    set.statistics = at::empty(pairs, options.dtype(result_dtype(c)));
    const at::Tensor statistics = set.statistics.view({rows, 2});
    const at::Tensor logits = set.scores.view({rows, -1});
    const at::Tensor log_probs = set.output.view({rows, -1});
    for_each_piece(c, [&](int64_t start, int64_t length) {
      const at::Tensor x = logits.narrow(0, start, length).to(at::kDouble);
      const at::Tensor peak = x.amax(-1);
      const at::Tensor rest = (x - peak.unsqueeze(-1)).exp().sum(-1).log();
      statistics.narrow(0, start, length).copy_(at::stack({peak, rest}, 1));
      log_probs.narrow(0, start, length).copy_(x - (peak + rest).unsqueeze(-1));
    });
  }
}

std::vector<Variant> logprob_variants(Direction direction) {
  using enum Variant::Kind;
  switch (direction) {
    case Direction::forward:
      return {{"warpfuse", plugin, warpfuse_forward},
              {"aten", aten, aten_forward},
              {"cross_entropy", aten, cross_entropy_forward, Variant::Gives::negated}};
    case Direction::backward:
      return {{"warpfuse", plugin, warpfuse_backward},
              {"in_place", plugin, warpfuse_in_place, Variant::Gives::overwritten},
              {"aten", aten, aten_backward},
              {"cross_entropy", aten, cross_entropy_backward}};
    default:
      return {{"warpfuse", plugin,
               [](const InputSet& in) { return warpfuse_backward(after_forward(in)); }},
              {"in_place", plugin,
               [](const InputSet& in) { return warpfuse_in_place(after_forward(in)); },
               Variant::Gives::overwritten},
              {"aten", aten, aten_both},
              {"cross_entropy", aten, cross_entropy_both}};
  }
}

std::vector<std::string> logprob_operators(Direction direction) {
  if (direction == Direction::forward) {
    return {"warpfuse::fused_logprob"};
  }
  return {"warpfuse::_fused_logprob", "warpfuse::_fused_logprob_backward",
          "warpfuse::_fused_logprob_backward_"};
}

double logprob_error(const Case& c, const InputSet& inputs, const at::Tensor& value) {
  const bool forward = c.direction == Direction::forward;
  const at::IntArrayRef expected_sizes = forward ? inputs.targets.sizes() : inputs.scores.sizes();
  // ATen's result has the dtype of the logits, ours that of the sums.
  const bool known_dtype =
      value.scalar_type() == c.dtype || (forward && value.scalar_type() == result_dtype(c));
  if (value.sizes() != expected_sizes || !known_dtype) {
    return std::numeric_limits<double>::infinity();
  }
  const int64_t rows = rows_of(c);
  double worst = 0;
  for_each_piece(c, [&](int64_t start, int64_t length) {
    const auto part = [&](const at::Tensor& tensor) {
      return tensor.reshape({rows, -1}).narrow(0, start, length);
    };
    const at::Tensor log_probs = at::log_softmax(part(inputs.scores).to(at::kDouble), -1);
    const at::Tensor target = part(inputs.targets);
    double error = 0;
    if (forward) {
      const at::Tensor expected = log_probs.gather(-1, target);
      error = largest_error(part(value), expected, expected.abs() + 1, 0);
    } else {
      const at::Tensor g = part(inputs.grad_output).to(at::kDouble);
      const at::Tensor p = log_probs.exp();
      const at::Tensor hit = at::zeros_like(p).scatter_(-1, target, 1.0);
      error = largest_error(part(value), g * (hit - p), g.abs() * (hit + p),
                            smallest_difference(c.dtype));
    }
    worst = worse(worst, error);
  });
  return worst;
}

Traffic logprob_traffic(const Case& c) {
  const auto element = static_cast<int64_t>(c10::elementSize(c.dtype));
  const auto result = static_cast<int64_t>(c10::elementSize(result_dtype(c)));
  const int64_t rows = rows_of(c);
  const int64_t pass = c.shape.elements() * element;
  const int64_t target = rows * static_cast<int64_t>(sizeof(int64_t));
  const int64_t forward = pass + target + rows * result;
  const int64_t backward = 2 * pass + target + rows * 3 * result;
  const int64_t unfused_forward = 2 * pass + 2 * target + 2 * rows * element;
  const int64_t unfused_backward = 4 * pass + target + 2 * rows * element;
  switch (c.direction) {
    case Direction::forward:
      return {.least = forward, .fused = forward, .unfused = unfused_forward};
    case Direction::backward:
      return {.least = backward, .fused = backward, .unfused = unfused_backward};
    default:
      // The statistics are written, too.
      return {.least = forward + backward + rows * 2 * result,
              .fused = forward + backward + rows * 2 * result,
              .unfused = unfused_forward + unfused_backward};
  }
}

}  // namespace warpfuse::host::bench
