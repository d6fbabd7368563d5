#include "skinny_linear/skinny_linear.h"

#include <warpfuse/sample_tokens.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "common/check.h"
#include "common/parallel_rows.h"
#include "core/operator.h"
#include "sample_tokens/sample_tokens.h"
#include "skinny_linear/linear_inputs.h"
#include "skinny_linear/skinny_linear_cpu.h"

namespace warpfuse {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

/// [.., out] of checked inputs.
template <typename Backend>
at::Tensor linear(LinearInputs&& inputs) {
  inputs.check();
  if constexpr (Backend::kKey != c10::DispatchKey::Meta) {
    auto arguments = inputs.few_rows();
    if (!arguments.has_value()) {
      Backend::computes(inputs.input);
      return inputs.by_aten();
    }
    at::Tensor output = Backend::empty(inputs.output_sizes(), inputs.input.options());
    if (Backend::computes(output)) {
      arguments->output = output.mutable_data_ptr();
      Backend::launch(output, *arguments);
    }
    return output;
  }
  return Backend::empty(inputs.output_sizes(), inputs.input.options());
}

struct NormLinear {
  static constexpr const char* kName = "norm_linear";

  template <typename Backend>
  static at::Tensor run(const at::Tensor& input, const at::Tensor& norm_weight,
                        const OptionalTensor& norm_bias, const at::Tensor& weight,
                        const OptionalTensor& bias, c10::string_view norm, double eps,
                        c10::string_view activation) {
    check_tensor(kName, "norm_weight", norm_weight);
    return linear<Backend>({.op = kName,
                            .input = input,
                            .weight = weight,
                            .bias = or_undefined(bias),
                            .norm_weight = norm_weight,
                            .norm_bias = or_undefined(norm_bias),
                            .norm = norm_named(kName, norm),
                            .epsilon = eps,
                            .activation = activation_named(kName, activation)});
  }
};

struct LinearResidual {
  static constexpr const char* kName = "linear_residual";

  template <typename Backend>
  static at::Tensor run(const at::Tensor& input, const at::Tensor& weight,
                        const OptionalTensor& bias, const at::Tensor& residual) {
    check_tensor(kName, "residual", residual);
    return linear<Backend>({.op = kName,
                            .input = input,
                            .weight = weight,
                            .bias = or_undefined(bias),
                            .residual = residual});
  }
};

struct LinearArgmax {
  static constexpr const char* kName = "linear_argmax";

  template <typename Backend>
  static at::Tensor run(const at::Tensor& input, const at::Tensor& weight,
                        const OptionalTensor& bias, const OptionalTensor& norm_weight,
                        const OptionalTensor& norm_bias, c10::string_view norm, double eps) {
    LinearInputs inputs{.op = kName,
                        .input = input,
                        .weight = weight,
                        .bias = or_undefined(bias),
                        .norm_weight = or_undefined(norm_weight),
                        .norm_bias = or_undefined(norm_bias),
                        .epsilon = eps};
    const Norm named = norm_named(kName, norm);
    inputs.norm = inputs.norm_weight.defined() ? named : Norm::none;
    inputs.check();
    const auto leading = input.sym_sizes().slice(0, input.dim() - 1);
    at::Tensor tokens = Backend::empty(leading, input.options().dtype(at::kLong));
    if constexpr (Backend::kKey != c10::DispatchKey::Meta) {
      WARPFUSE_CHECK(weight.size(0) > 0, kName, "weight", "at least one output",
                     c10::str("shape ", weight.sizes()));
      if (!Backend::computes(tokens)) {
        return tokens;
      }
      inputs.tokens = tokens.mutable_data_ptr<int64_t>();
      const auto arguments = inputs.few_rows();
      if (!arguments.has_value()) {
        WARPFUSE_CHECK(weight.size(0) <= kMaxColumns, kName, "weight",
                       c10::str("at most ", kMaxColumns, " outputs where rows go to ATen"),
                       weight.size(0));
        const at::Tensor step = at::empty({1}, tokens.options());  // greedy sampling reads none
        return sample_tokens(inputs.by_aten(), step, 0, /*temperature=*/0.0);
      }
      Backend::launch(tokens, *arguments);
    }
    return tokens;
  }
};

WARPFUSE_OPERATORS(m) {
  register_operator<NormLinear>(m);
  register_operator<LinearResidual>(m);
  register_operator<LinearArgmax>(m);
}

}  // namespace

void launch_cpu(const SkinnyLinearArguments& a) {
  std::vector<float> x(a.rows * a.columns);
  const SkinnyLinearTask task{a, x.data(), nullptr};
  skinny_norm_cpu(task, 0, a.rows);
  const int64_t work = a.columns * a.rows;  // per output
  if (a.tokens == nullptr) {
    parallel_rows(a.outputs, work,
                  [&](int64_t begin, int64_t end) { skinny_linear_cpu(task, begin, end); });
    return;
  }
  // Pieces of the outputs find their best ones apart; a later piece has higher indices.
  std::mutex mutex;
  std::vector<BestOutput> best(a.rows, {0, BestOutput::kNone});
  parallel_rows(a.outputs, work, [&](int64_t begin, int64_t end) {
    std::vector<BestOutput> found(a.rows, {0, BestOutput::kNone});
    skinny_linear_cpu({a, x.data(), found.data()}, begin, end);
    const std::scoped_lock lock(mutex);
    for (int64_t row = 0; row < a.rows; ++row) {
      best[row] = std::max(best[row], found[row]);
    }
  });
  for (int64_t row = 0; row < a.rows; ++row) {
    a.tokens[row] = std::max(best[row].output, BestOutput::kNone);
  }
}

}  // namespace warpfuse
