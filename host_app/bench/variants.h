#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/case.h"
#include "bench/inputs.h"

namespace warpfuse::host::bench {

// One way to compute a row.
struct Variant {
  enum class Kind { plugin, algorithm, aten };

  // What the call returns: the result in memory of its own, that with the other sign, or the result
  // written over the scores.
  enum class Gives { result, negated, overwritten };

  std::string name;
  Kind kind;
  std::function<at::Tensor(const InputSet&)> call;
  Gives gives = Gives::result;
};

// "warpfuse", the plugin's operator; then ATen's own: "aten", its operator, or "chain", the steps
// that scaled_masked_softmax stands for, one kernel each; then the plugin's algorithms by name,
// which only the forward of softmax and log_softmax has. What a mask step needs is ready before.
// fused_logprob's are in logprob.h.
std::vector<Variant> variants_of(const Case& c, const std::vector<std::string>& algorithms);

// The plugin's operators that the rows call, as require_operators takes them.
std::vector<std::string> operators_of(const std::vector<Case>& cases);

// The names that _softmax_algorithm knows on a device.
const std::vector<std::string>& algorithm_names(bool cuda);

// Whether an exception's text is _softmax_algorithm's, that this algorithm cannot take the shape.
bool is_refusal(std::string_view message);

}  // namespace warpfuse::host::bench
