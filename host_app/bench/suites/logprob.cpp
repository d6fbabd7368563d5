// fused_logprob, fused_logprob_lse and fused_logprob_entropy: logits [.., V], targets [..] drawn
// uniformly, temperature 1, nothing ignored. `Direction::both` is a forward and its backward, as a
// trainer calls them. "in_place" is the backward whose gradient overwrites the logits; ATen's are
// "aten", log_softmax and gather, with logsumexp or the sum of p log p, and for fused_logprob
// "cross_entropy", log_softmax and nll_loss, with the backward kernels that autograd calls.

#include <ATen/TensorOperators.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/gather_backward.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/nll_loss_backward.h>
#include <ATen/ops/nll_loss_forward.h>
#include <ATen/ops/zeros_like.h>
#include <warpfuse/dispatch.h>
#include <warpfuse/fused_logprob.h>

#include <tuple>

#include "bench/suites/logprob_inputs.h"
#include "bench/suites/suites.h"

namespace warpfuse::host::bench {
namespace logprob_suite {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using Set = LogprobSet;

constexpr std::array kDirections{Direction::forward, Direction::backward, Direction::both};
constexpr int64_t kIgnored = -100;
constexpr int64_t kNoReduction = 0;  // at::Reduction::None
// ATen takes the gradient from rounded log-probabilities, and is wrong by as much as they are.
constexpr double kAtenGradientFactor = 3;
constexpr double kMaxLogProb = 20;  // of the inputs, without its sign

// What a forward gives beside log p, which a backward is given the gradient of.
std::string_view form_of(const Case& c) {
  return c.op == &kFusedLogprobLse ? "lse" : c.op == &kFusedLogprobEntropy ? "entropy" : "logprob";
}

// --- the plugin -------------------------------------------------------------------------------

Outputs warpfuse_forward(const Set& in) {
  if (in.form == "logprob") {
    return fused_logprob(in.logits, in.targets, kIgnored);
  }
  auto [logprob, second] = in.form == "lse"
                               ? fused_logprob_lse(in.logits, in.targets, kIgnored)
                               : fused_logprob_entropy(in.logits, in.targets, kIgnored);
  return {std::move(logprob), {std::move(second)}};
}

// With what the backward needs of it.
LogprobSaved private_forward(const Set& in) {
  static const auto op =
      detail::find_operator<std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>(
          const at::Tensor&, const at::Tensor&, int64_t, double, bool, int64_t, c10::string_view)>(
          "warpfuse::_fused_logprob");
  const auto [logprob, lse, entropy, statistics] =
      op.call(in.logits, in.targets, kIgnored, 1.0, /*check_targets=*/false, 0, in.form);
  return {.statistics = statistics, .entropy = entropy};
}

template <typename Result>
Result call_backward(const char* name, const Set& in, const LogprobSaved& saved) {
  static const auto op = detail::find_operator<Result(
      const at::Tensor&, const at::Tensor&, const at::Tensor&, const OptionalTensor&,
      const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, int64_t, double, int64_t,
      c10::string_view)>(name);
  const auto in_form = [&](std::string_view form, const at::Tensor& tensor) {
    return in.form == form ? OptionalTensor(tensor) : std::nullopt;
  };
  return op.call(in.logits, in.targets, saved.statistics, in_form("entropy", saved.entropy),
                 in.grad_output, in_form("lse", in.grad_second), in_form("entropy", in.grad_second),
                 kIgnored, 1.0, 0, in.form);
}

at::Tensor gradient(const Set& in, const LogprobSaved& saved) {
  return call_backward<at::Tensor>("warpfuse::_fused_logprob_backward", in, saved);
}

at::Tensor gradient_in_place(const Set& in, const LogprobSaved& saved) {
  call_backward<void>("warpfuse::_fused_logprob_backward_", in, saved);
  return in.logits;
}

// --- ATen -------------------------------------------------------------------------------------

at::Tensor log_probs_of(const Set& in) { return at::log_softmax(in.logits, -1); }

Outputs gather(const Set& in, const at::Tensor& log_probs) {
  at::Tensor logprob = at::gather(log_probs, -1, in.targets.unsqueeze(-1)).squeeze(-1);
  if (in.form == "logprob") {
    return logprob;
  }
  return {std::move(logprob),
          {in.form == "lse" ? at::logsumexp(in.logits, {-1})
                            : (log_probs.exp() * log_probs).sum(-1).neg()}};
}

Outputs gather_gradient(const Set& in, const at::Tensor& log_probs) {
  at::Tensor grad =
      at::gather_backward(in.grad_rounded.unsqueeze(-1), log_probs, -1, in.targets.unsqueeze(-1),
                          /*sparse_grad=*/false);
  if (in.form == "entropy") {
    grad = grad - in.second_rounded.unsqueeze(-1) * (log_probs.exp() * (log_probs + 1));
  }
  grad = at::_log_softmax_backward_data(grad, log_probs, -1, log_probs.scalar_type());
  return in.form == "lse" ? grad + in.second_rounded.unsqueeze(-1) * log_probs.exp() : grad;
}

// [rows, V], as nll_loss takes them.
at::Tensor as_rows(const at::Tensor& logits) { return logits.flatten(0, -2); }

Outputs nll_loss(const Set& in, const at::Tensor& log_probs) {
  return std::get<0>(at::nll_loss_forward(as_rows(log_probs), in.targets.flatten(), std::nullopt,
                                          kNoReduction, kIgnored))
      .view(in.targets.sizes());
}

// The loss is -log p, and so is its gradient's sign: -g here gives g * d log p there.
Outputs nll_loss_gradient(const Set& in, const at::Tensor& log_probs) {
  const at::Tensor grad =
      at::nll_loss_backward(in.grad_negated.flatten(), as_rows(log_probs), in.targets.flatten(),
                            std::nullopt, kNoReduction, kIgnored, in.total_weight);
  return at::_log_softmax_backward_data(grad.view_as(log_probs), log_probs, -1,
                                        log_probs.scalar_type());
}

// --- checks -----------------------------------------------------------------------------------

// Of a result that has an element per row; `expected` of x and its log_softmax, as columns.
double row_error(
    const Case& c, const Set& in, const at::Tensor& value,
    const std::function<at::Tensor(const at::Tensor&, const at::Tensor&, const Part&)>& expected) {
  // ATen's result has the dtype of the logits, the plugin's that of the sums.
  const bool known_dtype = value.scalar_type() == c.dtype || value.scalar_type() == c.sum_dtype();
  if (value.sizes() != in.targets.sizes() || !known_dtype) {
    return kInfinity;
  }
  double worst = 0;
  for_each_piece(c.shape, [&](const Part& part) {
    const at::Tensor x = part(in.logits).to(at::kDouble);
    const at::Tensor wanted = expected(x, at::log_softmax(x, -1), part);
    worst = worse(worst, largest_error(column(part, value), {wanted, wanted.abs() + 1}, 0));
  });
  return worst;
}

double forward_error(const Case& c, const Set& in, const Outputs& outputs) {
  const double error = row_error(c, in, outputs.result,
                                 [&](const at::Tensor&, const at::Tensor& log_p, const Part& part) {
                                   return log_p.gather(-1, column(part, in.targets));
                                 });
  if (in.form == "logprob") {
    return error;
  }
  return worse(error, row_error(c, in, outputs.others.at(0),
                                [&](const at::Tensor& x, const at::Tensor& log_p, const Part&) {
                                  return in.form == "lse"
                                             ? at::logsumexp(x, {-1}, true)
                                             : (log_p.exp() * log_p).sum(-1, true).neg();
                                }));
}

Expected expected_gradient(const Case&, const Set& in, const Part& part) {
  const at::Tensor log_p = at::log_softmax(part(in.logits).to(at::kDouble), -1), p = log_p.exp();
  const at::Tensor hit = at::zeros_like(p).scatter_(-1, column(part, in.targets), 1.0);
  const at::Tensor g = column(part, in.grad_output).to(at::kDouble);
  Expected gradient{g * (hit - p), g.abs() * (hit + p)};
  if (in.form == "logprob") {
    return gradient;
  }
  const at::Tensor second = column(part, in.grad_second).to(at::kDouble) * p;
  if (in.form == "lse") {
    return {gradient.value + second, gradient.size + second.abs()};
  }
  const at::Tensor entropy = (p * log_p).sum(-1, true).neg();
  return {gradient.value - second * (log_p + entropy),
          gradient.size + second.abs() * (log_p.abs() + entropy)};
}

// --- the benchmark ----------------------------------------------------------------------------

std::vector<Variant> forward_variants(const Case& c, const Sets<Set>& sets) {
  using enum Variant::Kind;
  const double of_aten = tolerance_of(c.dtype, /*of_aten=*/true);
  const auto error = against(
      sets, [c](const Set& in, const Outputs& outputs) { return forward_error(c, in, outputs); });
  return {{"warpfuse", plugin, on(sets, warpfuse_forward), error,
           tolerance_of(c.sum_dtype(), /*of_aten=*/false)},
          {"aten", aten, on(sets, [](const Set& in) { return gather(in, log_probs_of(in)); }),
           error, of_aten},
          // Negated for the comparison alone: in the call it would be one kernel more.
          {"cross_entropy", aten,
           on(sets, [](const Set& in) { return nll_loss(in, log_probs_of(in)); }),
           [error](const Outputs& outputs) { return error(outputs.result.neg()); }, of_aten}};
}

std::vector<Variant> backward_variants(const Case& c, const Sets<Set>& sets) {
  using enum Variant::Kind;
  // A GPU's exponential is zero below float32's smallest normal number.
  const auto error = against_pieces(sets, c, expected_gradient, kMaxGradient);
  // ATen rounds p, which the entropy's gradient multiplies by log p.
  const auto error_of_aten = against_pieces(
      sets, c, expected_gradient, kMaxGradient * (form_of(c) == "entropy" ? kMaxLogProb : 1));
  const double tolerance = tolerance_of(c.dtype, /*of_aten=*/false);
  const double of_aten = tolerance_of(c.dtype, /*of_aten=*/true) * kAtenGradientFactor;
  const bool both = c.direction == Direction::both;
  const auto ours = [&](at::Tensor (*backward)(const Set&, const LogprobSaved&)) {
    return on(sets, [both, backward](const Set& in) {
      return backward(in, both ? private_forward(in) : in.saved);
    });
  };
  using Step = Outputs (*)(const Set&, const at::Tensor&);
  const auto atens = [&](Step forward, Step backward) {
    return on(sets, [both, forward, backward](const Set& in) {
      if (!both) {
        return backward(in, in.log_probs);
      }
      const at::Tensor log_probs = log_probs_of(in);
      forward(in, log_probs);  // a trainer would use its result
      return backward(in, log_probs);
    });
  };
  return {{"warpfuse", plugin, ours(gradient), error, tolerance},
          {"in_place", plugin, ours(gradient_in_place), error, tolerance, sets->front().logits},
          {"aten", aten, atens(gather, gather_gradient), error_of_aten, of_aten},
          {"cross_entropy", aten, atens(nll_loss, nll_loss_gradient), error, of_aten}};
}

std::vector<Variant> variants(const Case& c, const Setup& setup) {
  const Sets<Set> sets = make_logprob_inputs(c, setup, form_of(c));
  std::vector<Variant> all =
      c.direction == Direction::forward ? forward_variants(c, sets) : backward_variants(c, sets);
  if (form_of(c) != "logprob") {
    all.pop_back();  // cross_entropy gives log p alone
  }
  return all;
}

std::vector<std::string> operators(const Case& c) {
  if (c.direction == Direction::forward) {
    return {"warpfuse::" + std::string(c.op->name)};
  }
  return {"warpfuse::_fused_logprob", "warpfuse::_fused_logprob_backward",
          "warpfuse::_fused_logprob_backward_"};
}

// Logits are read once in each direction and the gradient is written once; a row has 8 bytes of
// target, 4 of result or its gradient, and 8 of statistics, in float64 twice that but for the
// target. Unfused: log_softmax reads and writes all; the backward fills a tensor of zeros, scatters
// into it, and reads it and the log-probabilities to write the gradient. lse and entropy are a
// number per row more in each direction; unfused logsumexp reads the logits twice, and its gradient
// is three kernels; entropy takes three kernels, and its gradient five.
Bytes bytes(const Case& c) {
  const auto element = c.element_bytes();
  const auto result = c.sum_bytes();
  const int64_t rows = c.rows();
  const int64_t pass = c.shape.elements() * element;
  const int64_t target = rows * static_cast<int64_t>(sizeof(int64_t));
  const int64_t lse = form_of(c) == "lse" ? 1 : 0, entropy = form_of(c) == "entropy" ? 1 : 0;
  int64_t least = 0, unfused = 0;
  if (c.direction != Direction::backward) {
    least += pass + target + rows * (1 + lse + entropy) * result;
    unfused += (2 + 2 * lse + 6 * entropy) * pass + 2 * target + 2 * rows * element;
  }
  if (c.direction != Direction::forward) {
    least += 2 * pass + target + rows * (3 + lse + 2 * entropy) * result;
    unfused += (4 + 7 * lse + 12 * entropy) * pass + target + 2 * rows * element;
  }
  if (c.direction == Direction::both) {
    least += rows * 2 * result;  // it writes the statistics and the entropy, too
  }
  return {.least = least, .fused = least, .unfused = unfused, .inputs = pass};
}

constexpr Benchmark benchmark(std::string_view name) {
  return {.name = name,
          .family = "fused_logprob",
          .shapes = kRowShapes,
          .takes = has_rows,
          .directions = kDirections,
          .operators = operators,
          .bytes = bytes,
          .variants = variants};
}

}  // namespace
}  // namespace logprob_suite

constexpr Benchmark kFusedLogprob = logprob_suite::benchmark("fused_logprob");
constexpr Benchmark kFusedLogprobLse = logprob_suite::benchmark("fused_logprob_lse");
constexpr Benchmark kFusedLogprobEntropy = logprob_suite::benchmark("fused_logprob_entropy");

}  // namespace warpfuse::host::bench
