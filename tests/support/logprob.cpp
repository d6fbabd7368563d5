#include "logprob.h"

#include <cmath>

#include "inputs.h"

namespace {

using OptionalTensor = std::optional<at::Tensor>;

template <typename Result>
using BackwardSignature = Result(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                 const OptionalTensor&, const OptionalTensor&,
                                 const OptionalTensor&, const OptionalTensor&, int64_t, double,
                                 int64_t, c10::string_view);

template <typename Result>
Result call_backward(const char* name, const at::Tensor& logits, const at::Tensor& targets,
                     const LogprobResults& results, const LogprobGradients& gradients,
                     const LogprobArguments& a) {
  const auto given = [](const at::Tensor& tensor) {
    return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
  };
  return warpfuse::detail::find_operator<BackwardSignature<Result>>(name).call(
      logits, targets, results.statistics,
      a.form == "entropy" ? given(results.entropy) : std::nullopt, given(gradients.logprob),
      given(gradients.lse), given(gradients.entropy), a.ignore_index, a.temperature, a.vocab_start,
      a.form);
}

}  // namespace

// --- the operators ----------------------------------------------------------------------------

std::vector<at::Tensor> logprob(const at::Tensor& logits, const at::Tensor& targets,
                                const LogprobArguments& a, bool check_targets) {
  if (a.form == "lse") {
    const auto [logprob, lse] = warpfuse::fused_logprob_lse(
        logits, targets, a.ignore_index, a.temperature, check_targets, a.vocab_start);
    return {logprob, lse};
  }
  if (a.form == "entropy") {
    const auto [logprob, entropy] = warpfuse::fused_logprob_entropy(logits, targets, a.ignore_index,
                                                                    a.temperature, check_targets);
    return {logprob, entropy};
  }
  return {warpfuse::fused_logprob(logits, targets, a.ignore_index, a.temperature, check_targets)};
}

LogprobResults logprob_with_statistics(const at::Tensor& logits, const at::Tensor& targets,
                                       const LogprobArguments& a) {
  static const auto op =
      warpfuse::detail::find_operator<std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>(
          const at::Tensor&, const at::Tensor&, int64_t, double, bool, int64_t, c10::string_view)>(
          "warpfuse::_fused_logprob");
  const auto [logprob, lse, entropy, statistics] =
      op.call(logits, targets, a.ignore_index, a.temperature, false, a.vocab_start, a.form);
  return {logprob, lse, entropy, statistics};
}

at::Tensor logprob_backward(const at::Tensor& logits, const at::Tensor& targets,
                            const LogprobResults& results, const LogprobGradients& gradients,
                            const LogprobArguments& a) {
  return call_backward<at::Tensor>("warpfuse::_fused_logprob_backward", logits, targets, results,
                                   gradients, a);
}

void logprob_backward_in_place(const at::Tensor& logits, const at::Tensor& targets,
                               const LogprobResults& results, const LogprobGradients& gradients,
                               const LogprobArguments& a) {
  call_backward<void>("warpfuse::_fused_logprob_backward_", logits, targets, results, gradients, a);
}

LogprobGradients random_gradients(const LogprobResults& results, const std::string& form) {
  const auto gradient = [&](bool wanted) {
    return wanted ? at::randn(results.logprob.sizes(), at::kDouble)
                        .to(results.logprob.scalar_type())
                        .to(results.logprob.device())
                  : at::Tensor();
  };
  return {gradient(true), gradient(form == "lse"), gradient(form == "entropy")};
}

std::vector<at::Tensor> aten_logprob(const at::Tensor& logits, const at::Tensor& targets,
                                     const LogprobArguments& a) {
  const at::Tensor y = logits / a.temperature;
  const at::Tensor log_p = at::log_softmax(y, -1);
  const at::Tensor ignored = targets.eq(a.ignore_index);
  const at::Tensor columns = (targets.to(at::kLong) - a.vocab_start);
  const at::Tensor outside = columns.lt(0).logical_or(columns.ge(logits.size(-1)));
  const at::Tensor logprob = log_p.gather(-1, columns.masked_fill(outside, 0).unsqueeze(-1))
                                 .squeeze(-1)
                                 .masked_fill(outside, -kInf)
                                 .masked_fill(ignored, 0.0);
  if (a.form == "lse") {
    return {logprob, at::logsumexp(y, -1)};
  }
  if (a.form == "entropy") {
    const at::Tensor finite = log_p.masked_fill(log_p.isinf(), 0.0);  // 0 * -inf adds nothing
    return {logprob, -(log_p.exp() * finite).sum(-1).masked_fill(ignored, 0.0)};
  }
  return {logprob};
}

// --- the reference ----------------------------------------------------------------------------

namespace {

/// What the results of all rows have in common; the last dimension is that of the logits, or 1.
struct LogprobRows {
  at::Tensor y;      // (x - max) / temperature
  at::Tensor shift;  // max / temperature
  Expected log_sum;  // log(sum(exp(y)))
  Expected entropy;
  at::Tensor ignored, inside;
  at::Tensor target;  // a column, 0 where it is none

  LogprobRows(const at::Tensor& logits, const at::Tensor& targets, const LogprobArguments& a) {
    const at::Tensor x = double_on_cpu(logits), max = x.amax(-1, true);
    y = (x - max) / a.temperature;
    shift = max / a.temperature;
    const at::Tensor sum = y.exp().sum(-1, true), p = y.exp() / sum;
    // The roundings of y move each term by a multiple of it.
    const at::Tensor finite = y.masked_fill(y == -kInf, 0.0);
    const at::Tensor first = -(p * finite).sum(-1, true);
    const at::Tensor second = (p * finite.square()).sum(-1, true);
    log_sum = {sum.log(), (sum.log() + first) * 4 + kBase};
    entropy = {log_sum.values + first, log_sum.error + first * kBase + second * 4};
    const at::Tensor index = targets.to(at::kCPU, at::kLong).unsqueeze(-1);
    const at::Tensor column = index - a.vocab_start;
    ignored = index == a.ignore_index;
    inside = ~ignored & (column >= 0) & (column < x.size(-1));
    target = column.masked_fill(~inside, 0);
  }
};

}  // namespace

ExpectedLogprob expected_logprob(const at::Tensor& logits, const at::Tensor& targets,
                                 const LogprobArguments& a) {
  const LogprobRows rows(logits, targets, a);
  const auto of_rows = [&](const at::Tensor& values, const at::Tensor& error) {
    return Expected{values.reshape(targets.sizes()), error.reshape(targets.sizes())};
  };
  const at::Tensor y = rows.y.gather(-1, rows.target);
  const at::Tensor logprob =
      at::where(rows.inside, y - rows.log_sum.values, a.form == "lse" ? -kInf : NAN);
  const at::Tensor error =
      at::where(rows.inside & y.isfinite(), rows.log_sum.error + y.abs() * 4, 0.0);
  return {
      .logprob = of_rows(logprob.masked_fill(rows.ignored, 0.0), error),
      .lse = of_rows(rows.shift + rows.log_sum.values, rows.log_sum.error + rows.shift.abs() * 4),
      .entropy = of_rows(rows.entropy.values.masked_fill(rows.ignored, 0.0),
                         rows.entropy.error.masked_fill(rows.ignored, 0.0)),
      .log_sum = of_rows(rows.log_sum.values, rows.log_sum.error)};
}

Expected expected_logprob_backward(const at::Tensor& logits, const at::Tensor& targets,
                                   const LogprobGradients& gradients, const LogprobArguments& a) {
  const LogprobRows rows(logits, targets, a);
  const auto host = [](const at::Tensor& tensor) {
    return tensor.defined() ? double_on_cpu(tensor).unsqueeze(-1) : at::zeros({1}, at::kDouble);
  };
  const at::Tensor g_logprob = at::where(rows.inside, host(gradients.logprob), 0.0);
  const at::Tensor g_entropy = at::where(rows.ignored, 0.0, host(gradients.entropy));
  const at::Tensor g_sum = host(gradients.lse) - g_logprob;
  const at::Tensor log_p = rows.y - rows.log_sum.values, p = log_p.exp();
  const at::Tensor finite = log_p.masked_fill(p == 0, 0.0), &entropy = rows.entropy.values;
  const at::Tensor hit = at::zeros_like(p).scatter(-1, rows.target, 1.0) * g_logprob;
  const at::Tensor of_p = g_sum.abs() + g_entropy.abs() * (finite.abs() + entropy);
  const at::Tensor error = p * (of_p * (rows.log_sum.error + kBase + finite.abs() * 8) +
                                g_entropy.abs() * rows.entropy.error + g_logprob.abs() * 4) +
                           hit.abs() * 8;
  return {(g_sum * p + hit - g_entropy * p * (finite + entropy)) / a.temperature,
          error / a.temperature};
}
