#pragma once

// sample_tokens as tests call it, and what it should do, by sorting in long double.

#include <ATen/ATen.h>

#include <optional>
#include <string>
#include <vector>

struct SampleArguments {
  int64_t seed = 0;
  double temperature = 1.0;
  int64_t top_k = 0;
  double top_p = 1.0;
  double min_p = 0.0;
  std::optional<at::Tensor> rows = std::nullopt;
};

std::string describe(const SampleArguments& arguments);

/// warpfuse::sample_tokens; `step` may be a number.
at::Tensor sample(const at::Tensor& logits, const at::Tensor& step,
                  const SampleArguments& arguments);
at::Tensor sample(const at::Tensor& logits, int64_t step, const SampleArguments& arguments);

/// Of one row, by id: the probability with which each token is to be drawn. Tokens whose cut is
/// nearer to a limit than roundings may tell apart are `doubtful`.
struct ExpectedTokens {
  std::vector<double> probability;
  std::vector<bool> doubtful;
  bool any_doubt = false;
};
ExpectedTokens expected_tokens(const at::Tensor& row, const SampleArguments& arguments);

/// What is wrong with the draws of one row: a token that is cut, a kept one that never came though
/// it was due 40 times, or frequencies that are not the probabilities (chi-square).
/// Empty where all is well.
std::string frequency_mismatch(const at::Tensor& tokens, const ExpectedTokens& expected);
