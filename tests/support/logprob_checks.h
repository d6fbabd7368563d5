#pragma once

// Inputs and the common check of the fused_logprob tests.

#include <ATen/ATen.h>

#include "catch.h"
#include "compare.h"
#include "inputs.h"
#include "logprob.h"
#include "poison.h"

/// Columns drawn at random, the first and the last among them.
inline at::Tensor random_targets(at::IntArrayRef sizes, int64_t columns, const at::Device& device,
                                 at::ScalarType dtype = at::kLong) {
  const at::Tensor targets = at::randint(columns, sizes, at::kLong);
  if (targets.numel() > 1) {
    targets.view(-1)[0].fill_(columns - 1);
    targets.view(-1)[1].fill_(0);
  }
  return targets.to(dtype).to(device);
}

inline std::string describe(const LogprobArguments& a) {
  return a.form + ", ignore_index " + std::to_string(a.ignore_index) + ", temperature " +
         std::to_string(a.temperature) + ", vocab_start " + std::to_string(a.vocab_start);
}

/// The forward pass on poisoned memory against the reference: the public operator and the one that
/// keeps statistics. No other kernel touches what they read and write (test_cuda_sanitize.cpp).
inline void check_logprob(const at::Tensor& logits, const at::Tensor& targets,
                          const LogprobArguments& arguments) {
  INFO(describe(logits) << ", " << describe(arguments));
  const Poison poison;
  const ExpectedLogprob expected = expected_logprob(logits, targets, arguments);
  const std::vector<at::Tensor> got = logprob(logits, targets, arguments);
  for (const at::Tensor& result : got) {
    CHECK(result.scalar_type() == (logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat));
    CHECK(result.is_contiguous());
  }
  CHECK(mismatch(got[0], expected.logprob) == "");
  const LogprobResults kept = logprob_with_statistics(logits, targets, arguments);
  CHECK(bit_mismatch(kept.logprob, got[0]) == "");
  if (arguments.form == "lse") {
    CHECK(mismatch(got[1], expected.lse) == "");
    CHECK(bit_mismatch(kept.lse, got[1]) == "");
  } else if (arguments.form == "entropy") {
    CHECK(mismatch(got[1], expected.entropy) == "");
    CHECK(bit_mismatch(kept.entropy, got[1]) == "");
  }
  // Rows that nobody needs are not reduced.
  const at::Tensor reduced = arguments.form == "lse" ? at::ones(targets.sizes(), at::kBool)
                                                     : targets.cpu().ne(arguments.ignore_index);
  const at::Tensor max = logits.cpu().amax(-1).to(got[0].scalar_type());
  const at::Tensor statistics = kept.statistics.cpu();
  CHECK(at::equal(statistics.select(-1, 0).masked_select(reduced), max.masked_select(reduced)));
  CHECK(mismatch(statistics.select(-1, 1).masked_select(reduced),
                 {expected.log_sum.values.masked_select(reduced),
                  expected.log_sum.error.masked_select(reduced)}) == "");
}
