#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/case.h"
#include "bench/inputs.h"

namespace warpfuse::host::bench {

// What a call returns: its result, and what a training step gives besides.
struct Outputs {
  // Implicit, since most calls return one tensor.
  Outputs(at::Tensor only)  // NOLINT(misc-explicit-constructor)
      : result(std::move(only)) {}
  Outputs(at::Tensor largest, std::vector<at::Tensor> rest)
      : result(std::move(largest)), others(std::move(rest)) {}

  int64_t bytes() const;
  // Of all tensors.
  void fill(double value) const;

  at::Tensor result;
  std::vector<at::Tensor> others;
};

// One way to compute a row.
struct Variant {
  enum class Kind { plugin, algorithm, aten };

  // What the call returns: the result in memory of its own, that with the other sign, or the result
  // written over the scores.
  enum class Gives { result, negated, overwritten };

  std::string name;
  Kind kind;
  std::function<Outputs(const InputSet&)> call;
  Gives gives = Gives::result;
  // In place of error_of, where that is not enough: what draws random numbers is asked what it
  // drew, with the generators rewound before the call and here again, and what computes something
  // else than the row has a reference of its own.
  std::function<double(const InputSet&, const Outputs&)> error = nullptr;
};

// "warpfuse", the plugin's operator; then ATen's own: "aten", its operator, or "chain", the steps
// that scaled_masked_softmax stands for, one kernel each; then the plugin's algorithms by name,
// which only the forward of softmax and log_softmax has. What a mask step needs is ready before.
// fused_logprob's are in logprob.h, those with dropout in dropout.h and linear_dropout.h.
std::vector<Variant> variants_of(const Case& c, const std::vector<std::string>& algorithms);

// The plugin's operators that the rows call, as require_operators takes them.
std::vector<std::string> operators_of(const std::vector<Case>& cases);

// The names that _softmax_algorithm knows on a device.
const std::vector<std::string>& algorithm_names(bool cuda);

// Sets libtorch's generators of random numbers to one and the same state.
void rewind_generators();

// Whether an exception's text is _softmax_algorithm's, that this algorithm cannot take the shape.
bool is_refusal(std::string_view message);

}  // namespace warpfuse::host::bench
