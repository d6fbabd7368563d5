#include "logprob.h"

#include <cmath>
#include <functional>
#include <limits>

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
                                 .masked_fill(outside, -std::numeric_limits<double>::infinity())
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

constexpr long double kInfinity = std::numeric_limits<long double>::infinity();

/// A value with its error in epsilons.
struct Value {
  long double value = 0;
  long double error = 0;
};

struct LogprobRow {
  std::vector<long double> y;  // (x - max) / temperature
  long double shift = 0;       // max / temperature
  Value log_sum;               // log(sum(exp(y)))
  Value entropy;
  int64_t target = 0;  // a column, if it is one
  bool ignored = false;
  bool inside = false;

  LogprobRow(const double* x, int64_t columns, int64_t index, const LogprobArguments& a)
      : y(columns), target(index - a.vocab_start), ignored(index == a.ignore_index) {
    inside = !ignored && target >= 0 && target < columns;
    const long double temperature = a.temperature;
    long double max = -kInfinity;
    for (int64_t k = 0; k < columns; ++k) {
      max = std::max(max, static_cast<long double>(x[k]));
    }
    long double sum = 0;
    for (int64_t k = 0; k < columns; ++k) {
      y[k] = (x[k] - max) / temperature;
      sum += std::exp(y[k]);
    }
    shift = max / temperature;
    // The roundings of y move each term by a multiple of it.
    long double first = 0;
    long double second = 0;
    for (const long double value : y) {
      if (value != -kInfinity) {
        const long double p = std::exp(value) / sum;
        first -= p * value;
        second += p * value * value;
      }
    }
    log_sum = {std::log(sum), kBase + 4 * (std::log(sum) + first)};
    entropy = {log_sum.value + first, log_sum.error + kBase * first + 4 * second};
  }
};

/// Calls function(row, index) for each row.
void for_rows(const at::Tensor& logits, const at::Tensor& targets, const LogprobArguments& a,
              const std::function<void(const LogprobRow&, int64_t)>& function) {
  const at::Tensor x = logits.detach().to(at::kCPU, at::kDouble).contiguous();
  const at::Tensor t = targets.to(at::kCPU, at::kLong).contiguous();
  const int64_t columns = x.size(-1);
  for (int64_t i = 0; i < t.numel(); ++i) {
    function(LogprobRow(x.const_data_ptr<double>() + i * columns, columns,
                        t.const_data_ptr<int64_t>()[i], a),
             i);
  }
}

Expected expected_of(at::IntArrayRef sizes) {
  return {at::zeros(sizes, at::kDouble), at::zeros(sizes, at::kDouble)};
}

void put(const Expected& expected, int64_t i, const Value& value) {
  expected.values.mutable_data_ptr<double>()[i] = static_cast<double>(value.value);
  expected.error.mutable_data_ptr<double>()[i] = static_cast<double>(value.error);
}

}  // namespace

ExpectedLogprob expected_logprob(const at::Tensor& logits, const at::Tensor& targets,
                                 const LogprobArguments& a) {
  const at::IntArrayRef sizes = targets.sizes();
  ExpectedLogprob expected{expected_of(sizes), expected_of(sizes), expected_of(sizes),
                           expected_of(sizes)};
  for_rows(logits, targets, a, [&](const LogprobRow& row, int64_t i) {
    put(expected.log_sum, i, row.log_sum);
    put(expected.lse, i,
        {row.shift + row.log_sum.value, row.log_sum.error + 4 * std::abs(row.shift)});
    if (row.ignored) {
      return;
    }
    put(expected.entropy, i, row.entropy);
    if (row.inside) {
      const long double y = row.y[row.target];
      put(expected.logprob, i,
          {y - row.log_sum.value, y == -kInfinity ? 0 : row.log_sum.error + 4 * std::abs(y)});
    } else {
      put(expected.logprob, i, {a.form == "lse" ? -kInfinity : NAN, 0});
    }
  });
  return expected;
}

Expected expected_logprob_backward(const at::Tensor& logits, const at::Tensor& targets,
                                   const LogprobGradients& gradients, const LogprobArguments& a) {
  const auto host = [](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.to(at::kCPU, at::kDouble).contiguous() : at::Tensor();
  };
  const at::Tensor of_logprob = host(gradients.logprob);
  const at::Tensor of_lse = host(gradients.lse);
  const at::Tensor of_entropy = host(gradients.entropy);
  const auto at_row = [](const at::Tensor& tensor, int64_t i) {
    return tensor.defined() ? tensor.const_data_ptr<double>()[i] : 0.0;
  };
  const Expected expected = expected_of(logits.sizes());
  const int64_t columns = logits.size(-1);
  for_rows(logits, targets, a, [&](const LogprobRow& row, int64_t i) {
    const long double g_logprob = row.inside ? at_row(of_logprob, i) : 0.0;
    const long double g_lse = at_row(of_lse, i);
    const long double g_entropy = row.ignored ? 0.0 : at_row(of_entropy, i);
    for (int64_t k = 0; k < columns; ++k) {
      const bool hit = row.inside && k == row.target;
      const long double log_p = row.y[k] - row.log_sum.value;
      const long double p = std::exp(log_p);
      const long double finite = p == 0 ? 0 : log_p;
      const long double inner = finite + row.entropy.value;
      const long double value =
          (g_lse - g_logprob) * p + (hit ? g_logprob : 0) - g_entropy * p * inner;
      const long double of_p = std::abs(g_lse - g_logprob) +
                               std::abs(g_entropy) * (std::abs(finite) + row.entropy.value);
      const long double error =
          p * (of_p * (kBase + row.log_sum.error + 8 * std::abs(finite)) +
               std::abs(g_entropy) * row.entropy.error + 4 * std::abs(g_logprob)) +
          (hit ? 8 * std::abs(g_logprob) : 0);
      put(expected, i * columns + k, {value / a.temperature, error / a.temperature});
    }
  });
  return expected;
}
