#pragma once

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <array>
#include <tuple>
#include <vector>

#include "common/counters.h"
#include "fused_logprob/fused_logprob.h"

namespace warpfuse {

/// The operators on a backend, from its two launches:
///
///     struct Backend {
///       static Counter calls[3];  // of the forms
///       static Counter backward_calls;
///       static void forward(const char* op, c10::Device device, const FusedLogprobArguments&);
///       static void backward(const char* op, c10::Device device,
///                            const FusedLogprobBackwardArguments&);
///     };
template <typename Backend>
class FusedLogprob {
 public:
  static void register_in(torch::Library& m) {
    m.impl("fused_logprob", logprob);
    m.impl("fused_logprob_lse", logprob_lse);
    m.impl("fused_logprob_entropy", logprob_entropy);
    m.impl("_fused_logprob", with_statistics);
    m.impl("_fused_logprob_backward", backward);
    m.impl("_fused_logprob_backward_", backward_in_place);
  }

 private:
  using OptionalTensor = std::optional<at::Tensor>;

  struct Results {
    at::Tensor logprob;
    at::Tensor lse;
    at::Tensor entropy;
    at::Tensor statistics;
  };

  // --- forward --------------------------------------------------------------------------------

  static Results run(const char* op, const LogprobInputs& inputs, bool check_targets,
                     bool statistics) {
    check_logprob(op, inputs);
    const at::Tensor& logits = inputs.logits;
    check_columns(op, inputs);
    if (check_targets || logits.is_cpu()) {
      check_target_values(op, inputs);
    }
    Backend::calls[static_cast<int>(inputs.form)].add();
    const auto options = logits.options().dtype(logprob_dtype(logits));
    const auto results = [&](bool wanted) {
      return wanted ? at::empty(inputs.targets.sizes(), options) : at::Tensor();
    };
    Results out{results(true),
                results(inputs.form == LogprobForm::lse),
                results(inputs.form == LogprobForm::entropy),
                {}};
    if (statistics) {
      std::vector<int64_t> sizes = inputs.targets.sizes().vec();
      sizes.push_back(2);
      out.statistics = at::empty(sizes, options);
    }
    if (inputs.targets.numel() == 0) {
      return out;
    }
    const at::Tensor x = readable(logits);
    const at::Tensor targets = inputs.targets.contiguous();
    const auto pointer = [](const at::Tensor& tensor) {
      return tensor.defined() ? tensor.mutable_data_ptr() : nullptr;
    };
    Backend::forward(op, logits.device(),
                     {x.const_data_ptr(), to_dtype(x.scalar_type()), known_rows(x),
                      logprob_targets(inputs, targets), inputs.temperature, pointer(out.logprob),
                      pointer(out.lse), pointer(out.entropy), pointer(out.statistics)});
    return out;
  }

  static at::Tensor logprob(const at::Tensor& logits, const at::Tensor& targets,
                            int64_t ignore_index, double temperature, bool check_targets) {
    return run("fused_logprob",
               {logits, targets, ignore_index, temperature, 0, LogprobForm::logprob}, check_targets,
               false)
        .logprob;
  }

  static std::tuple<at::Tensor, at::Tensor> logprob_lse(const at::Tensor& logits,
                                                        const at::Tensor& targets,
                                                        int64_t ignore_index, double temperature,
                                                        bool check_targets, int64_t vocab_start) {
    const Results out =
        run("fused_logprob_lse",
            {logits, targets, ignore_index, temperature, vocab_start, LogprobForm::lse},
            check_targets, false);
    return {out.logprob, out.lse};
  }

  static std::tuple<at::Tensor, at::Tensor> logprob_entropy(const at::Tensor& logits,
                                                            const at::Tensor& targets,
                                                            int64_t ignore_index,
                                                            double temperature,
                                                            bool check_targets) {
    const Results out = run("fused_logprob_entropy",
                            {logits, targets, ignore_index, temperature, 0, LogprobForm::entropy},
                            check_targets, false);
    return {out.logprob, out.entropy};
  }

  static std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> with_statistics(
      const at::Tensor& logits, const at::Tensor& targets, int64_t ignore_index, double temperature,
      bool check_targets, int64_t vocab_start, c10::string_view form) {
    const LogprobInputs inputs{logits,      targets,     ignore_index,
                               temperature, vocab_start, logprob_form("_fused_logprob", form)};
    const Results out = run(public_name(inputs.form), inputs, check_targets, true);
    const auto or_empty = [&](const at::Tensor& tensor) {
      return tensor.defined() ? tensor : at::empty({0}, out.logprob.options());
    };
    return {out.logprob, or_empty(out.lse), or_empty(out.entropy), out.statistics};
  }

  // --- backward -------------------------------------------------------------------------------

  // grad_logits may be the logits.
  static void run_backward(const char* op, const LogprobInputs& inputs,
                           const LogprobGradients& gradients, const at::Tensor& grad_logits) {
    check_columns(op, inputs);
    if (inputs.logits.is_cpu()) {
      check_target_values(op, inputs);
    }
    Backend::backward_calls.add();
    if (inputs.targets.numel() == 0) {
      return;
    }
    const at::Tensor x = readable(inputs.logits);
    const at::Tensor targets = inputs.targets.contiguous();
    const auto contiguous = [](const OptionalTensor& tensor) {
      return tensor.has_value() && tensor->defined() ? tensor->contiguous() : at::Tensor();
    };
    const at::Tensor statistics = gradients.statistics.contiguous();
    const std::array<at::Tensor, 4> rows = {
        contiguous(gradients.entropy), contiguous(gradients.grad_logprob),
        contiguous(gradients.grad_lse), contiguous(gradients.grad_entropy)};
    const auto pointer = [](const at::Tensor& tensor) {
      return tensor.defined() ? tensor.const_data_ptr() : nullptr;
    };
    Backend::backward(
        op, inputs.logits.device(),
        {x.const_data_ptr(), to_dtype(x.scalar_type()), known_rows(x),
         logprob_targets(inputs, targets), inputs.temperature, statistics.const_data_ptr(),
         pointer(rows[0]), pointer(rows[1]), pointer(rows[2]), pointer(rows[3]),
         grad_logits.mutable_data_ptr(), known_rows(grad_logits)});
  }

  static at::Tensor backward(const at::Tensor& logits, const at::Tensor& targets,
                             const at::Tensor& statistics, const OptionalTensor& entropy,
                             const OptionalTensor& grad_logprob, const OptionalTensor& grad_lse,
                             const OptionalTensor& grad_entropy, int64_t ignore_index,
                             double temperature, int64_t vocab_start, c10::string_view form) {
    constexpr const char* kOp = "_fused_logprob_backward";
    const LogprobInputs inputs{logits,      targets,     ignore_index,
                               temperature, vocab_start, logprob_form(kOp, form)};
    const LogprobGradients gradients{statistics, entropy, grad_logprob, grad_lse, grad_entropy};
    check_logprob_backward(kOp, inputs, gradients);
    at::Tensor grad_logits = at::empty(logits.sizes(), logits.options());
    run_backward(kOp, inputs, gradients, grad_logits);
    return grad_logits;
  }

  static void backward_in_place(const at::Tensor& logits, const at::Tensor& targets,
                                const at::Tensor& statistics, const OptionalTensor& entropy,
                                const OptionalTensor& grad_logprob, const OptionalTensor& grad_lse,
                                const OptionalTensor& grad_entropy, int64_t ignore_index,
                                double temperature, int64_t vocab_start, c10::string_view form) {
    constexpr const char* kOp = "_fused_logprob_backward_";
    const LogprobInputs inputs{logits,      targets,     ignore_index,
                               temperature, vocab_start, logprob_form(kOp, form)};
    const LogprobGradients gradients{statistics, entropy, grad_logprob, grad_lse, grad_entropy};
    check_logprob_backward(kOp, inputs, gradients);
    WARPFUSE_CHECK(at::has_internal_overlap(logits) != at::MemOverlap::Yes, kOp, "logits",
                   "rows that share no memory",
                   c10::str("strides ", logits.strides(), " of ", logits.sizes()));
    // A copy would take the memory that writing in place is meant to save.
    WARPFUSE_CHECK(logit_rows(logits).has_value(), kOp, "logits",
                   "dense columns and leading dimensions of at most two strides",
                   c10::str("strides ", logits.strides(), " of ", logits.sizes()));
    run_backward(kOp, inputs, gradients, logits);
  }

  // --- logits ---------------------------------------------------------------------------------

  static void check_columns(const char* op, const LogprobInputs& inputs) {
    WARPFUSE_CHECK(inputs.logits.size(-1) > 0 || inputs.targets.numel() == 0, op, "logits",
                   "at least one column", c10::str("shape ", inputs.logits.sizes()));
  }

  static at::Tensor readable(const at::Tensor& logits) {
    return logit_rows(logits).has_value() ? logits : logits.contiguous();
  }

  /// Of readable logits.
  static LogitRows known_rows(const at::Tensor& logits) {
    const std::optional<LogitRows> rows = logit_rows(logits);
    TORCH_INTERNAL_ASSERT(rows.has_value());
    return *rows;
  }
};

}  // namespace warpfuse
