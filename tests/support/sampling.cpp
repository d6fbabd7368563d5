#include "sampling.h"

#include <warpfuse/sample_tokens.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

std::string describe(const SampleArguments& a) {
  return c10::str("seed ", a.seed, ", temperature ", a.temperature, ", top_k ", a.top_k, ", top_p ",
                  a.top_p, ", min_p ", a.min_p);
}

at::Tensor sample(const at::Tensor& logits, const at::Tensor& step, const SampleArguments& a) {
  return warpfuse::sample_tokens(logits, step, a.seed, a.temperature, a.top_k, a.top_p, a.min_p,
                                 a.rows);
}

at::Tensor sample(const at::Tensor& logits, int64_t step, const SampleArguments& arguments) {
  return sample(logits, at::full({1}, step, logits.options().dtype(at::kLong)), arguments);
}

namespace {

/// A row under the cuts, likeliest token first, lower ids first among equals.
class Cuts {
 public:
  explicit Cuts(const at::Tensor& row, double temperature)
      : values_(row.to(at::kCPU, at::kDouble).contiguous()),
        x_(values_.const_data_ptr<double>(), values_.const_data_ptr<double>() + values_.numel()),
        order_(x_.size()),
        weight_(x_.size()) {
    std::iota(order_.begin(), order_.end(), 0);
    std::ranges::stable_sort(order_, [&](int64_t a, int64_t b) { return x_[a] > x_[b]; });
    const double max = x_[order_[0]];
    for (size_t i = 0; i < x_.size(); ++i) {
      const long double y = static_cast<long double>(x_[i]) - max;
      weight_[i] = x_[i] == max ? 1.0L : std::exp(y / temperature);
    }
  }

  void top_k(int64_t k) {
    if (k > 0 && k < static_cast<int64_t>(order_.size())) {
      const double least = x_[order_[k - 1]];
      keep([&](int64_t token) { return x_[token] >= least; });
    }
  }

  /// From the smallest up, what adds up to at most 1 - p goes; the largest stays.
  void top_p(double p) {
    if (p >= 1) {
      return;
    }
    const long double limit = 1 - p, total = sum();
    long double left_out = 0;
    while (order_.size() > 1) {
      left_out += weight_[order_.back()] / total;
      doubt(order_.back(), left_out, limit, 1.0L);
      if (left_out > limit) {
        break;
      }
      order_.pop_back();
    }
  }

  void min_p(double p) {
    for (const int64_t token : order_) {
      doubt(token, weight_[token], p, p);
    }
    keep([&](int64_t token) { return weight_[token] >= p; });
  }

  ExpectedTokens result() const {
    ExpectedTokens expected{std::vector<double>(x_.size()), std::vector<bool>(x_.size())};
    for (const int64_t token : order_) {
      expected.probability[token] = static_cast<double>(weight_[token] / sum_);
    }
    for (const int64_t token : doubtful_) {
      // Equal tokens may take each other's place.
      for (size_t i = 0; i < x_.size(); ++i) {
        expected.doubtful[i] = expected.doubtful[i] || x_[i] == x_[token];
      }
    }
    expected.any_doubt = !doubtful_.empty();
    return expected;
  }

  void finish() { sum_ = sum(); }

 private:
  template <typename Keep>
  void keep(const Keep& keeps) {
    std::erase_if(order_, [&](int64_t token) { return !keeps(token); });
  }
  long double sum() const {
    long double total = 0;
    for (const int64_t token : order_) {
      total += weight_[token];
    }
    return total;
  }
  /// Masses are rounded to 2^-43 of the likeliest token's, and the error of a sum is that of its
  /// terms.
  void doubt(int64_t token, long double value, long double limit, long double scale) {
    const long double error = 1e-12L * scale + std::ldexp(static_cast<long double>(x_.size()), -43);
    if (limit > 0 && std::fabs(value - limit) <= error) {
      doubtful_.push_back(token);
    }
  }

  at::Tensor values_;
  std::vector<double> x_;
  std::vector<int64_t> order_;
  std::vector<long double> weight_;
  std::vector<int64_t> doubtful_;
  long double sum_ = 0;
};

}  // namespace

ExpectedTokens expected_tokens(const at::Tensor& row, const SampleArguments& arguments) {
  if (arguments.temperature == 0) {
    Cuts cuts(row, 1.0);
    cuts.top_p(std::numeric_limits<double>::min());
    cuts.finish();
    return cuts.result();
  }
  Cuts cuts(row, arguments.temperature);
  cuts.top_k(arguments.top_k);
  cuts.top_p(arguments.top_p);
  cuts.min_p(arguments.min_p);
  cuts.finish();
  return cuts.result();
}

std::string frequency_mismatch(const at::Tensor& tokens, const ExpectedTokens& expected) {
  const at::Tensor drawn = tokens.to(at::kCPU, at::kLong).contiguous().view(-1);
  const auto columns = static_cast<int64_t>(expected.probability.size());
  std::vector<int64_t> counts(columns);
  for (int64_t i = 0; i < drawn.numel(); ++i) {
    const int64_t token = drawn.const_data_ptr<int64_t>()[i];
    if (token < 0 || token >= columns) {
      return c10::str("token ", token, " of ", columns);
    }
    if (expected.probability[token] <= 0 && !expected.doubtful[token]) {
      return c10::str("token ", token, ", which is cut");
    }
    ++counts[token];
  }
  // Tokens expected less than ten times are one class.
  double chi_square = 0, rare = 0, rare_count = 0;
  int64_t classes = 0;
  const auto add = [&](double count, double wanted) {
    chi_square += (count - wanted) * (count - wanted) / wanted;
    ++classes;
  };
  for (int64_t token = 0; token < columns; ++token) {
    const double wanted = expected.probability[token] * static_cast<double>(drawn.numel());
    if (wanted >= 40 && counts[token] == 0 && !expected.doubtful[token]) {
      return c10::str("token ", token, " never came, where ", wanted, " were due");
    }
    if (wanted >= 10) {
      add(static_cast<double>(counts[token]), wanted);
    } else {
      rare += wanted;
      rare_count += static_cast<double>(counts[token]);
    }
  }
  if (rare >= 10) {
    add(rare_count, rare);
  }
  const double freedom = std::max<double>(1, static_cast<double>(classes) - 1);
  // Five standard deviations, and a little for the skew of few classes.
  const double most = freedom + 5 * std::sqrt(2 * freedom) + 12;
  return expected.any_doubt || chi_square <= most
             ? ""
             : c10::str("chi-square of ", chi_square, " with ", classes, " classes");
}
