#pragma once

#include <c10/core/Device.h>

#include <vector>

#include "bench/case.h"
#include "bench/inputs.h"
#include "bench/traffic.h"
#include "bench/variants.h"

namespace warpfuse::host::bench {

// fused_logprob in the benchmark: logits [.., V] of the row's shape and dtype in
// InputSet::scores, targets [..] drawn uniformly, temperature 1, nothing ignored. `Direction::both`
// is a forward and its backward, as a trainer calls them.

// What forward and backward take besides the logits, for each set.
void add_logprob_inputs(std::vector<InputSet>& inputs, const Case& c);

// "warpfuse"; where there is a backward, "in_place", whose gradient overwrites the logits; then
// ATen: "aten", log_softmax and gather, and "cross_entropy", log_softmax and nll_loss, with the
// backward kernels that autograd calls for them.
std::vector<Variant> logprob_variants(Direction direction);

// The plugin's operators that those call.
std::vector<std::string> logprob_operators(Direction direction);

// As error_of. The size of an element's terms is 1 + |reference| in the forward and
// |g| * ([k == target] + p) in the backward.
double logprob_error(const Case& c, const InputSet& inputs, const at::Tensor& value);

// Bytes, as a model. Logits are read once in each direction and the gradient is written once; a row
// has 8 bytes of target, 4 of result or its gradient, and 16 of statistics, in float64 8 and 16.
// Unfused: log_softmax reads and writes all; the backward fills a tensor of zeros, scatters into
// it, and reads it and the log-probabilities to write the gradient.
Traffic logprob_traffic(const Case& c);

}  // namespace warpfuse::host::bench
