// The bits of a row's results depend on that row alone: trainers compare what engines computed in
// different batches.

#include "support/compare.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/logprob.h"
#include "support/logprob_checks.h"
#include "support/pch.h"
#include "support/threads.h"

namespace {

/// Row `row` of every result, of the statistics and of the gradient.
std::vector<at::Tensor> row_of(const at::Tensor& logits, const at::Tensor& targets,
                               const LogprobGradients& gradients, int64_t row,
                               const LogprobArguments& arguments) {
  const LogprobResults results = logprob_with_statistics(logits, targets, arguments);
  std::vector<at::Tensor> rows = {
      results.logprob[row], results.statistics[row],
      logprob_backward(logits, targets, results, gradients, arguments)[row]};
  for (const at::Tensor& other : {results.lse, results.entropy}) {
    if (other.numel() > 0) {
      rows.push_back(other[row]);
    }
  }
  for (at::Tensor& tensor : rows) {
    tensor = tensor.cpu();
  }
  return rows;
}

std::string differing(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::string text = bit_mismatch(a[i], b[i]); !text.empty()) {
      return c10::str("result ", i, ": ", text);
    }
  }
  return a.size() == b.size() ? "" : "numbers of results";
}

/// The row with its target and its gradients.
struct Case {
  at::Tensor row;
  int64_t target;
  double weight;
  LogprobArguments arguments;
};

/// The case as row `at` of `rows`, whose logits begin `offset` elements into an allocation.
std::vector<at::Tensor> in_batch(const Case& c, int64_t rows, int64_t at, int64_t offset) {
  const int64_t columns = c.row.numel();
  const at::Tensor logits = at::empty({offset + rows * columns}, c.row.options())
                                .narrow(0, offset, rows * columns)
                                .view({rows, columns});
  const int64_t distinct = std::min<int64_t>(rows, 5);
  logits.copy_(random_tensor({distinct, columns}, c.row.scalar_type(), c.row.device())
                   .repeat({rows / distinct, 1}));
  logits[at].copy_(c.row);
  const at::Tensor targets = random_targets({rows}, columns, c.row.device());
  targets[at].fill_(c.target);
  const auto dtype = c.row.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto gradient = [&](bool wanted) {
    return wanted ? at::full({rows}, c.weight, c.row.options().dtype(dtype)) : at::Tensor();
  };
  return row_of(logits, targets,
                {gradient(true), gradient(c.arguments.form == "lse"),
                 gradient(c.arguments.form == "entropy")},
                at, c.arguments);
}

}  // namespace

WARPFUSE_DEVICE_TEST("a row has the same bits at every alignment and in every batch",
                     "[logprob][invariance]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t columns : {1, 33, 1000, 4096, 8193, 32'000, 50'257, 128'256}) {
      for (const std::string& form : kLogprobForms) {
        const Case c{random_with_outliers({columns}, dtype, device),
                     columns / 3,
                     0.75,
                     {.temperature = 0.9, .form = form}};
        const auto alone = in_batch(c, 1, 0, 0);
        for (int64_t offset = 0; offset < 8; ++offset) {
          INFO(describe(c.row) << ", " << form << " at offset " << offset);
          CHECK(differing(in_batch(c, 1, 0, offset), alone) == "");
          CHECK(differing(in_batch(c, 2, 1, offset), alone) == "");
        }
        if (columns <= 50'257 && (dtype == at::kBFloat16 || columns <= 9000)) {
          INFO(describe(c.row) << ", " << form << " among 500");
          CHECK(differing(in_batch(c, 500, 0, 0), alone) == "");
          CHECK(differing(in_batch(c, 500, 323, 3), alone) == "");
        }
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("other results beside it, and a longer row stride, change no bit",
                     "[logprob][invariance]") {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const int64_t columns : {1000, 50'257, 128'256}) {
      const at::Tensor padded = random_tensor({3, columns + 47}, dtype, device);
      const at::Tensor x = padded.narrow(1, 0, columns);
      const at::Tensor targets = random_targets({3}, columns, device);
      const at::Tensor expected = warpfuse::fused_logprob(x.contiguous(), targets);
      CHECK(bit_mismatch(warpfuse::fused_logprob(x, targets), expected) == "");
      for (const std::string form : {"lse", "entropy"}) {
        CHECK(bit_mismatch(logprob(x, targets, {.form = form})[0], expected) == "");
      }
      CHECK(bit_mismatch(warpfuse::fused_logprob(x, targets.to(at::kInt)), expected) == "");
    }
  }
}

TEST_CASE("the number of threads changes no bit of fused_logprob", "[logprob][invariance]") {
  for (const int64_t rows : {1, 2, 7}) {
    const at::Tensor x = random_tensor({rows, 128'256}, at::kFloat);
    const at::Tensor targets = random_targets({rows}, 128'256, at::kCPU);
    for (const std::string& form : kLogprobForms) {
      const LogprobArguments arguments{.form = form};
      const Threads single(1);
      const LogprobResults one = logprob_with_statistics(x, targets, arguments);
      const LogprobGradients gradients = random_gradients(one, form);
      const at::Tensor gradient = logprob_backward(x, targets, one, gradients, arguments);
      for (const int n : {2, 3, 8}) {
        const Threads several(n);
        const LogprobResults many = logprob_with_statistics(x, targets, arguments);
        CHECK(bit_mismatch(many.logprob, one.logprob) == "");
        CHECK(bit_mismatch(many.lse, one.lse) == "");
        CHECK(bit_mismatch(many.entropy, one.entropy) == "");
        CHECK(bit_mismatch(many.statistics, one.statistics) == "");
        CHECK(bit_mismatch(logprob_backward(x, targets, many, gradients, arguments), gradient) ==
              "");
      }
    }
  }
}
