#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace warpfuse::host {

// Seconds, in buckets whose limits double.
class Histogram {
 public:
  void add(double seconds);
  std::string text(const std::string& name, const std::string& help) const;

 private:
  static constexpr std::array<double, 15> kLimits{0.0005, 0.001, 0.002, 0.004, 0.008,
                                                  0.016,  0.032, 0.064, 0.128, 0.256,
                                                  0.512,  1.024, 2.048, 4.096, 8.192};
  std::array<int64_t, kLimits.size() + 1> counts_{};
  double sum_ = 0;
};

// What GET /metrics tells. Any thread.
class Metrics {
 public:
  // Of a request: "ok", "error", "cancelled", or "refused".
  void count_request(const std::string& outcome);
  void count_prompt_tokens(int64_t tokens);
  // Of the tokens of a step, in seconds: since the request, where they are the first ones, and
  // since the token before.
  struct Times {
    std::vector<double> first;
    std::vector<double> later;
  };
  void count_tokens(const Times& times);

  struct Gauges {
    int64_t queued;
    int64_t rows_in_use;
    int64_t rows;
    int64_t softmax_calls;
    int64_t softmax_calls_by_plugin;
  };
  // In Prometheus' text format.
  std::string text(const Gauges& gauges) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, int64_t> requests_{
      {"ok", 0}, {"error", 0}, {"cancelled", 0}, {"refused", 0}};
  int64_t prompt_tokens_ = 0;
  int64_t tokens_ = 0;
  Histogram first_token_;
  Histogram token_;
};

}  // namespace warpfuse::host
