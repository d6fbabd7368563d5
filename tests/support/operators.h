#pragma once

// The plugin's operators as tests call them, the private ones included, beside what ATen has.

#include <warpfuse/info.h>
#include <warpfuse/scaled_masked_softmax.h>
#include <warpfuse/softmax.h>

#include <array>
#include <optional>
#include <string>

#include "reference.h"

/// What softmax and log_softmax have in common, so that one test body serves both.
struct SoftmaxOperator {
  const char* name;
  at::Tensor (*plugin)(const at::Tensor& self, int64_t dim, std::optional<at::ScalarType> dtype);
  at::Tensor (*aten)(const at::Tensor& self, int64_t dim, std::optional<at::ScalarType> dtype);
  bool log;

  at::Tensor operator()(const at::Tensor& self, int64_t dim,
                        std::optional<at::ScalarType> dtype = std::nullopt) const {
    return plugin(self, dim, dtype);
  }
  Expected expected(const at::Tensor& self, int64_t dim) const {
    return expected_softmax(self, dim, log);
  }
};

extern const std::array<SoftmaxOperator, 2> kSoftmaxOperators;

/// warpfuse::scaled_masked_softmax.
at::Tensor masked_softmax(const at::Tensor& scores, const MaskArguments& arguments);

/// ATen's chain of mul, add or masked_fill, and softmax. Rules become a masked_fill of -inf, so
/// that a row without a visible key is NaN here.
at::Tensor aten_masked_softmax(const at::Tensor& scores, const MaskArguments& arguments);

at::Tensor softmax_algorithm(const at::Tensor& self, int64_t dim, const std::string& algorithm,
                             bool log = false);
at::Tensor softmax_backward(const at::Tensor& grad_output, const at::Tensor& output, int64_t dim);
at::Tensor log_softmax_backward(const at::Tensor& grad_output, const at::Tensor& output,
                                int64_t dim);
at::Tensor masked_softmax_backward(const at::Tensor& grad_output, const at::Tensor& output,
                                   const MaskArguments& arguments);

/// The tuning table in use, as text; and another in its place ("": the library's own).
std::string library_tuning();
void set_library_tuning(const std::string& text);

/// The log of kernel launches.
void record_launches(bool on);
std::string launches_json();

/// How often a counter moved since this was made.
class CounterDelta {
 public:
  explicit CounterDelta(std::string name) : name_(std::move(name)), start_(read()) {}
  int64_t operator()() const { return read() - start_; }

 private:
  int64_t read() const { return warpfuse::call_count(name_); }
  std::string name_;
  int64_t start_;
};
