#include "serve/metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace warpfuse::host {
namespace {

std::string metric(const std::string& name, const char* type, const char* help, int64_t value) {
  return fmt::format("# HELP warpfuse_{0} {1}\n# TYPE warpfuse_{0} {2}\nwarpfuse_{0} {3}\n", name,
                     help, type, value);
}

}  // namespace

void Histogram::add(double seconds) {
  const auto* const limit = std::ranges::lower_bound(kLimits, seconds);
  ++counts_[static_cast<size_t>(limit - kLimits.begin())];
  sum_ += seconds;
}

std::string Histogram::text(const std::string& name, const std::string& help) const {
  std::string text =
      fmt::format("# HELP warpfuse_{0} {1}\n# TYPE warpfuse_{0} histogram\n", name, help);
  int64_t below = 0;
  for (size_t i = 0; i < kLimits.size(); ++i) {
    below += counts_[i];
    text += fmt::format("warpfuse_{}_bucket{{le=\"{}\"}} {}\n", name, kLimits[i], below);
  }
  below += counts_.back();
  return text + fmt::format(
                    "warpfuse_{0}_bucket{{le=\"+Inf\"}} {1}\nwarpfuse_{0}_sum {2}\n"
                    "warpfuse_{0}_count {1}\n",
                    name, below, sum_);
}

void Metrics::count_request(const std::string& outcome) {
  const std::scoped_lock lock(mutex_);
  ++requests_[outcome];
}

void Metrics::count_prompt_tokens(int64_t tokens) {
  const std::scoped_lock lock(mutex_);
  prompt_tokens_ += tokens;
}

void Metrics::count_tokens(const Times& times) {
  const std::scoped_lock lock(mutex_);
  tokens_ += static_cast<int64_t>(times.first.size() + times.later.size());
  std::ranges::for_each(times.first, [this](double seconds) { first_token_.add(seconds); });
  std::ranges::for_each(times.later, [this](double seconds) { token_.add(seconds); });
}

std::string Metrics::text(const Gauges& gauges) const {
  const std::scoped_lock lock(mutex_);
  std::string text =
      "# HELP warpfuse_requests_total Completions asked for, by outcome.\n"
      "# TYPE warpfuse_requests_total counter\n";
  for (const auto& [outcome, count] : requests_) {
    text += fmt::format("warpfuse_requests_total{{outcome=\"{}\"}} {}\n", outcome, count);
  }
  return text + metric("queue_length", "gauge", "Requests that wait for a row.", gauges.queued) +
         metric("rows_in_use", "gauge", "Rows of the batch in use.", gauges.rows_in_use) +
         metric("rows", "gauge", "Rows of the batch.", gauges.rows) +
         metric("prompt_tokens_total", "counter", "Tokens of prompts taken in.", prompt_tokens_) +
         metric("tokens_total", "counter", "Tokens generated.", tokens_) +
         metric("softmax_calls_total", "counter", "Softmax computations.", gauges.softmax_calls) +
         metric("softmax_calls_by_plugin_total", "counter", "Those by the plugin.",
                gauges.softmax_calls_by_plugin) +
         first_token_.text("time_to_first_token_seconds", "From the request to its first token.") +
         token_.text("time_per_token_seconds", "Between two tokens of a choice.");
}

}  // namespace warpfuse::host
