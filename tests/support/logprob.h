#pragma once

// fused_logprob in all its forms as tests call it, and what it should give, by ATen's operators in
// float64 on the CPU.

#include <ATen/ATen.h>
#include <warpfuse/fused_logprob.h>

#include <optional>
#include <string>
#include <vector>

#include "reference.h"

inline const std::vector<std::string> kLogprobForms = {"logprob", "lse", "entropy"};

/// All arguments but logits and targets. `vocab_start` is for the form "lse".
struct LogprobArguments {
  int64_t ignore_index = -100;
  double temperature = 1.0;
  int64_t vocab_start = 0;
  std::string form = "logprob";
};

/// `lse` and `entropy` are empty in the forms that do not have them.
struct LogprobResults {
  at::Tensor logprob;
  at::Tensor lse;
  at::Tensor entropy;
  at::Tensor statistics;
};

/// A gradient for each result; undefined: none.
struct LogprobGradients {
  at::Tensor logprob = at::Tensor();
  at::Tensor lse = at::Tensor();
  at::Tensor entropy = at::Tensor();
};

/// The public operator of the form: its one or two results.
std::vector<at::Tensor> logprob(const at::Tensor& logits, const at::Tensor& targets,
                                const LogprobArguments& arguments, bool check_targets = false);

LogprobResults logprob_with_statistics(const at::Tensor& logits, const at::Tensor& targets,
                                       const LogprobArguments& arguments);
at::Tensor logprob_backward(const at::Tensor& logits, const at::Tensor& targets,
                            const LogprobResults& results, const LogprobGradients& gradients,
                            const LogprobArguments& arguments);
void logprob_backward_in_place(const at::Tensor& logits, const at::Tensor& targets,
                               const LogprobResults& results, const LogprobGradients& gradients,
                               const LogprobArguments& arguments);

/// Random gradients for the results of the form, in their dtype.
LogprobGradients random_gradients(const LogprobResults& results, const std::string& form);

/// log_softmax and gather, logsumexp, and the entropy of softmax, by ATen's operators on logits of
/// finite columns: the same results in the dtype of the logits, differentiable.
std::vector<at::Tensor> aten_logprob(const at::Tensor& logits, const at::Tensor& targets,
                                     const LogprobArguments& arguments);

struct ExpectedLogprob {
  Expected logprob;
  Expected lse;
  Expected entropy;
  Expected log_sum;  // the second half of the statistics
};

/// Logits are finite, or -inf beside a finite one. A target outside the columns is another shard's
/// in the form "lse", else NaN.
ExpectedLogprob expected_logprob(const at::Tensor& logits, const at::Tensor& targets,
                                 const LogprobArguments& arguments);
Expected expected_logprob_backward(const at::Tensor& logits, const at::Tensor& targets,
                                   const LogprobGradients& gradients,
                                   const LogprobArguments& arguments);
