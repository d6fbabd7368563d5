// fused_logprob: logits [.., V], targets [..] drawn uniformly, temperature 1, nothing ignored.
// `Direction::both` is a forward and its backward, as a trainer calls them. "in_place" is the
// backward whose gradient overwrites the logits; ATen's are "aten", log_softmax and gather, and
// "cross_entropy", log_softmax and nll_loss, with the backward kernels that autograd calls.

#include <ATen/TensorOperators.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/gather_backward.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/nll_loss_backward.h>
#include <ATen/ops/nll_loss_forward.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros_like.h>
#include <warpfuse/dispatch.h>
#include <warpfuse/fused_logprob.h>

#include <limits>
#include <optional>
#include <tuple>

#include "bench/suites/inputs.h"
#include "bench/suites/suites.h"

namespace warpfuse::host::bench {
namespace logprob_suite {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

constexpr std::array kDirections{Direction::forward, Direction::backward, Direction::both};
constexpr int64_t kIgnored = -100;
constexpr const char* kForm = "logprob";
constexpr int64_t kNoReduction = 0;  // at::Reduction::None
// ATen takes the gradient from rounded log-probabilities, and is wrong by as much as they are.
constexpr double kAtenGradientFactor = 3;

struct Set {
  at::Tensor logits, targets;
  at::Tensor grad_output;   // of the result, backward and both; for ATen:
  at::Tensor grad_rounded;  // in the logits' dtype
  at::Tensor grad_negated;  // of the loss, which is -log p
  at::Tensor total_weight;  // [], which nll_loss's backward asks for
  // What a forward leaves for the backward alone: the plugin's [.., 2], and ATen's log_softmax.
  at::Tensor statistics, log_probs;
};

int64_t rows_of(const Case& c) { return c.shape.elements() / c.shape.columns(); }

c10::ScalarType result_dtype(const Case& c) {
  return c.dtype == at::kDouble ? at::kDouble : at::kFloat;
}

// The part of a tensor that has one element per row, as a column.
at::Tensor column(const Part& part, const at::Tensor& tensor) {
  return part(tensor.unsqueeze(-1)).narrow(-1, 0, 1);
}

// --- inputs -----------------------------------------------------------------------------------

void add_forward_results(Set& set, const Case& c) {
  std::vector<int64_t> pairs = set.targets.sizes().vec();
  pairs.push_back(2);
  set.statistics = at::empty(pairs, set.grad_output.options());
  set.log_probs = at::empty_like(set.logits);
  for_each_piece(c.shape, [&](const Part& part) {
    const at::Tensor x = part(set.logits).to(at::kDouble);
    const at::Tensor peak = x.amax(-1, true);
    const at::Tensor rest = (x - peak).exp().sum(-1, true).log();
    column(part, set.statistics.select(-1, 0)).copy_(peak);
    column(part, set.statistics.select(-1, 1)).copy_(rest);
    part(set.log_probs).copy_(x - (peak + rest));
  });
}

Sets<Set> make_inputs(const Case& c, const Setup& setup) {
  const at::TensorOptions options = options_of(c, setup);
  Sets<Set> sets = make_sets<Set>(setup);
  add_tensors(*sets, &Set::logits, c.shape.sizes, options, setup.scores);
  const std::vector<int64_t> leading(c.shape.sizes.begin(), c.shape.sizes.end() - 1);
  for (Set& set : *sets) {
    set.targets = at::randint(c.shape.columns(), leading, options.dtype(at::kLong));
    if (c.direction == Direction::forward) {
      continue;
    }
    // Representable in the dtype, so that all variants are given the same gradient.
    set.grad_rounded = at::randn(leading, options);
    set.grad_negated = -set.grad_rounded;
    set.grad_output = set.grad_rounded.to(result_dtype(c));
    set.total_weight = at::empty({}, options).fill_(static_cast<double>(rows_of(c)));
    if (c.direction == Direction::backward) {
      add_forward_results(set, c);
    }
  }
  return sets;
}

// --- the plugin -------------------------------------------------------------------------------

at::Tensor warpfuse_forward(const Set& in) {
  return fused_logprob(in.logits, in.targets, kIgnored);
}

at::Tensor statistics_of_forward(const Set& in) {
  static const auto op =
      detail::find_operator<std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>(
          const at::Tensor&, const at::Tensor&, int64_t, double, bool, int64_t, c10::string_view)>(
          "warpfuse::_fused_logprob");
  return std::get<3>(
      op.call(in.logits, in.targets, kIgnored, 1.0, /*check_targets=*/false, 0, kForm));
}

template <typename Result>
Result call_backward(const char* name, const Set& in, const at::Tensor& statistics) {
  static const auto op = detail::find_operator<Result(
      const at::Tensor&, const at::Tensor&, const at::Tensor&, const OptionalTensor&,
      const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, int64_t, double, int64_t,
      c10::string_view)>(name);
  return op.call(in.logits, in.targets, statistics, std::nullopt, in.grad_output, std::nullopt,
                 std::nullopt, kIgnored, 1.0, 0, kForm);
}

at::Tensor gradient(const Set& in, const at::Tensor& statistics) {
  return call_backward<at::Tensor>("warpfuse::_fused_logprob_backward", in, statistics);
}

at::Tensor gradient_in_place(const Set& in, const at::Tensor& statistics) {
  call_backward<void>("warpfuse::_fused_logprob_backward_", in, statistics);
  return in.logits;
}

// --- ATen -------------------------------------------------------------------------------------

at::Tensor log_probs_of(const Set& in) { return at::log_softmax(in.logits, -1); }

at::Tensor gather(const Set& in, const at::Tensor& log_probs) {
  return at::gather(log_probs, -1, in.targets.unsqueeze(-1)).squeeze(-1);
}

at::Tensor gather_gradient(const Set& in, const at::Tensor& log_probs) {
  const at::Tensor grad =
      at::gather_backward(in.grad_rounded.unsqueeze(-1), log_probs, -1, in.targets.unsqueeze(-1),
                          /*sparse_grad=*/false);
  return at::_log_softmax_backward_data(grad, log_probs, -1, log_probs.scalar_type());
}

// [rows, V], as nll_loss takes them.
at::Tensor as_rows(const at::Tensor& logits) { return logits.flatten(0, -2); }

at::Tensor nll_loss(const Set& in, const at::Tensor& log_probs) {
  return std::get<0>(at::nll_loss_forward(as_rows(log_probs), in.targets.flatten(), std::nullopt,
                                          kNoReduction, kIgnored))
      .view(in.targets.sizes());
}

// The loss is -log p, and so is its gradient's sign: -g here gives g * d log p there.
at::Tensor nll_loss_gradient(const Set& in, const at::Tensor& log_probs) {
  const at::Tensor grad =
      at::nll_loss_backward(in.grad_negated.flatten(), as_rows(log_probs), in.targets.flatten(),
                            std::nullopt, kNoReduction, kIgnored, in.total_weight);
  return at::_log_softmax_backward_data(grad.view_as(log_probs), log_probs, -1,
                                        log_probs.scalar_type());
}

// A forward, whose result a trainer would use, and its backward.
template <auto forward, auto backward>
at::Tensor aten_both(const Set& in) {
  const at::Tensor log_probs = log_probs_of(in);
  forward(in, log_probs);
  return backward(in, log_probs);
}

// --- checks -----------------------------------------------------------------------------------

double forward_error(const Case& c, const Set& in, const at::Tensor& value) {
  // ATen's result has the dtype of the logits, the plugin's that of the sums.
  const bool known_dtype = value.scalar_type() == c.dtype || value.scalar_type() == result_dtype(c);
  if (value.sizes() != in.targets.sizes() || !known_dtype) {
    return std::numeric_limits<double>::infinity();
  }
  double worst = 0;
  for_each_piece(c.shape, [&](const Part& part) {
    const at::Tensor expected =
        at::log_softmax(part(in.logits).to(at::kDouble), -1).gather(-1, column(part, in.targets));
    worst = worse(worst, largest_error(column(part, value), {expected, expected.abs() + 1}, 0));
  });
  return worst;
}

Expected expected_gradient(const Case&, const Set& in, const Part& part) {
  const at::Tensor p = at::softmax(part(in.logits).to(at::kDouble), -1);
  const at::Tensor hit = at::zeros_like(p).scatter_(-1, column(part, in.targets), 1.0);
  const at::Tensor g = column(part, in.grad_output).to(at::kDouble);
  return {g * (hit - p), g.abs() * (hit + p)};
}

// --- the benchmark ----------------------------------------------------------------------------

std::vector<Variant> forward_variants(const Case& c, const Sets<Set>& sets) {
  using enum Variant::Kind;
  const double of_aten = tolerance_of(c.dtype, /*of_aten=*/true);
  const auto error = [&](bool negated) {
    return against(sets, [c, negated](const Set& in, const Outputs& outputs) {
      return forward_error(c, in, negated ? outputs.result.neg() : outputs.result);
    });
  };
  return {{"warpfuse", plugin, on(sets, warpfuse_forward), error(false),
           tolerance_of(result_dtype(c), /*of_aten=*/false)},
          {"aten", aten, on(sets, [](const Set& in) { return gather(in, log_probs_of(in)); }),
           error(false), of_aten},
          // Negated for the comparison alone: in the call it would be one kernel more.
          {"cross_entropy", aten,
           on(sets, [](const Set& in) { return nll_loss(in, log_probs_of(in)); }), error(true),
           of_aten}};
}

std::vector<Variant> variants(const Case& c, const Setup& setup) {
  using enum Variant::Kind;
  const Sets<Set> sets = make_inputs(c, setup);
  if (c.direction == Direction::forward) {
    return forward_variants(c, sets);
  }
  // A GPU's exponential is zero below float32's smallest normal number.
  const auto error = against_pieces(sets, c, expected_gradient, kMaxGradient);
  const double tolerance = tolerance_of(c.dtype, /*of_aten=*/false);
  const double of_aten = tolerance_of(c.dtype, /*of_aten=*/true) * kAtenGradientFactor;
  const bool both = c.direction == Direction::both;
  const auto ours = [&](at::Tensor (*backward)(const Set&, const at::Tensor&)) {
    return on(sets, [both, backward](const Set& in) {
      return backward(in, both ? statistics_of_forward(in) : in.statistics);
    });
  };
  const auto atens = [&](at::Tensor (*step)(const Set&),
                         at::Tensor (*backward)(const Set&, const at::Tensor&)) {
    return on(sets, [both, step, backward](const Set& in) {
      return both ? step(in) : backward(in, in.log_probs);
    });
  };
  return {
      {"warpfuse", plugin, ours(gradient), error, tolerance},
      {"in_place", plugin, ours(gradient_in_place), error, tolerance, sets->front().logits},
      {"aten", aten, atens(aten_both<gather, gather_gradient>, gather_gradient), error, of_aten},
      {"cross_entropy", aten, atens(aten_both<nll_loss, nll_loss_gradient>, nll_loss_gradient),
       error, of_aten}};
}

std::vector<std::string> operators(const Case& c) {
  if (c.direction == Direction::forward) {
    return {"warpfuse::fused_logprob"};
  }
  return {"warpfuse::_fused_logprob", "warpfuse::_fused_logprob_backward",
          "warpfuse::_fused_logprob_backward_"};
}

// Logits are read once in each direction and the gradient is written once; a row has 8 bytes of
// target, 4 of result or its gradient, and 8 of statistics, in float64 twice that but for the
// target. Unfused: log_softmax reads and writes all; the backward fills a tensor of zeros, scatters
// into it, and reads it and the log-probabilities to write the gradient.
Bytes bytes(const Case& c) {
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
      return {.least = forward, .fused = forward, .unfused = unfused_forward, .inputs = pass};
    case Direction::backward:
      return {.least = backward, .fused = backward, .unfused = unfused_backward, .inputs = pass};
    default: {
      const int64_t least = forward + backward + rows * 2 * result;  // writes the statistics, too
      return {.least = least,
              .fused = least,
              .unfused = unfused_forward + unfused_backward,
              .inputs = pass};
    }
  }
}

constexpr Benchmark kBenchmark{
    .name = "fused_logprob",
    .shapes = "at least 2 sizes, and no other dim than the last,",
    .takes = [](const Shape& shape) { return shape.sizes.size() >= 2 && shape.dim == -1; },
    .directions = kDirections,
    .operators = operators,
    .bytes = bytes,
    .variants = variants};

}  // namespace
}  // namespace logprob_suite

constexpr Benchmark kFusedLogprob = logprob_suite::kBenchmark;

}  // namespace warpfuse::host::bench
