#include "fused_logprob/fused_logprob.h"

#include <ATen/MemoryOverlap.h>

#include <vector>

#include "common/parallel_rows.h"
#include "core/operator.h"
#include "fused_logprob/logprob_inputs.h"

namespace warpfuse {
namespace {

// --- checks -----------------------------------------------------------------------------------

/// What Meta does not know: the values of sizes and, where they are read, of targets.
template <typename Backend>
void check_data(const char* op, const LogprobInputs& inputs, LogprobForm form) {
  if constexpr (Backend::kKey != c10::DispatchKey::Meta) {
    WARPFUSE_CHECK(inputs.logits.size(-1) > 0 || inputs.targets.numel() == 0, op, "logits",
                   "at least one column", c10::str("shape ", inputs.logits.sizes()));
    if (inputs.check_targets || inputs.logits.is_cpu()) {
      check_target_values(op, inputs, form == LogprobForm::lse);
    }
  }
}

// --- the kernels' view ------------------------------------------------------------------------

/// How kernels read logits in place; none if they need a copy: columns are not adjacent, or the
/// leading dimensions are more than two strides.
std::optional<LogitRows> strided_rows(const at::Tensor& logits) {
  struct Level {
    int64_t size = 1;
    int64_t stride = 0;
  };
  const int64_t last = logits.dim() - 1;
  if (logits.size(last) > 1 && logits.stride(last) != 1) {
    return std::nullopt;
  }
  std::vector<Level> levels;  // innermost first; dimensions that one stride serves are merged
  for (int64_t d = last - 1; d >= 0; --d) {
    if (logits.size(d) == 1) {
      continue;
    }
    if (!levels.empty() && logits.stride(d) == levels.back().stride * levels.back().size) {
      levels.back().size *= logits.size(d);
    } else {
      levels.push_back({logits.size(d), logits.stride(d)});
    }
  }
  if (levels.size() > 2) {
    return std::nullopt;
  }
  levels.resize(2);
  return LogitRows{levels[0].size * levels[1].size, logits.size(last), levels[0].size,
                   levels[1].stride, levels[0].stride};
}

LogitRows readable_rows(const at::Tensor& logits) {
  const std::optional<LogitRows> rows = strided_rows(logits);
  TORCH_INTERNAL_ASSERT(rows.has_value());
  return *rows;
}

/// Logits and targets for the kernels, and the tensors that hold them.
struct LogprobTensors {
  at::Tensor logits, targets;
  LogitRows layout;
  LogprobTargets target_arguments;

  LogprobTensors(const LogprobInputs& inputs, LogprobForm form)
      : logits(strided_rows(inputs.logits) ? inputs.logits : inputs.logits.contiguous()),
        targets(inputs.targets.contiguous()),
        layout(readable_rows(logits)),
        target_arguments{targets.const_data_ptr(), targets.scalar_type() == at::kLong,
                         inputs.ignore_index, inputs.vocab_start, form == LogprobForm::lse} {}
};

// --- operators --------------------------------------------------------------------------------

template <typename Backend>
LogprobResults run_forward(const LogprobInputs& inputs, LogprobForm form, bool statistics) {
  const char* const op = kFormOperators[static_cast<int>(form)];
  check_logprob(op, inputs);
  check_data<Backend>(op, inputs, form);
  const auto options = logprob_options(inputs.logits);
  const auto result = [&](bool wanted) {
    return wanted       ? Backend::empty(inputs.targets.sym_sizes(), options)
           : statistics ? Backend::empty({0}, options)
                        : at::Tensor();
  };
  const bool has_lse = form == LogprobForm::lse, has_entropy = form == LogprobForm::entropy;
  LogprobResults results{result(true), result(has_lse), result(has_entropy), {}};
  auto& [logprob, lse, entropy, row_statistics] = results;
  if (statistics) {
    row_statistics = Backend::empty(statistics_sizes(inputs.targets), options);
  }
  if (Backend::computes(inputs.targets)) {
    const LogprobTensors in(inputs, form);
    const auto pointer = [](bool wanted, const at::Tensor& tensor) {
      return wanted ? tensor.mutable_data_ptr() : nullptr;
    };
    Backend::launch(
        inputs.logits,
        FusedLogprobArguments{in.logits.const_data_ptr(), to_dtype(in.logits.scalar_type()),
                              in.layout, in.target_arguments, inputs.temperature,
                              pointer(true, logprob), pointer(has_lse, lse),
                              pointer(has_entropy, entropy), pointer(statistics, row_statistics)});
  }
  return results;
}

/// Shard: int64_t for the operator with vocab_start, else none.
template <LogprobForm kForm, typename... Shard>
struct FusedLogprob {
  static constexpr const char* kName = kFormOperators[static_cast<int>(kForm)];

  template <typename Backend>
  static FormResult<kForm> run(const at::Tensor& logits, const at::Tensor& targets,
                               int64_t ignore_index, double temperature, bool check_targets,
                               Shard... vocab_start) {
    return form_result<kForm>(run_forward<Backend>(
        {logits, targets, ignore_index, temperature, check_targets,
         (int64_t{0} + ... + vocab_start), kFormNames[static_cast<int>(kForm)]},
        kForm, /*statistics=*/false));
  }
};
using Logprob = FusedLogprob<LogprobForm::logprob>;
using LogprobLse = FusedLogprob<LogprobForm::lse, int64_t>;
using LogprobEntropy = FusedLogprob<LogprobForm::entropy>;

/// The same backend for another operator, whose calls it counts.
template <typename Backend, typename Op>
struct BackendFor;
template <template <typename> typename Backend, typename From, typename Op>
struct BackendFor<Backend<From>, Op> {
  using type = Backend<Op>;
};

struct WithStatistics {
  static constexpr const char* kName = "_fused_logprob";

  template <typename Backend>
  static LogprobResults run(const LogprobInputs& inputs) {
    const LogprobForm form = logprob_form(kName, inputs.form);
    const auto run_as = [&]<typename Op>(Op) {
      return run_forward<typename BackendFor<Backend, Op>::type>(inputs, form, true);
    };
    return form == LogprobForm::lse       ? run_as(LogprobLse())
           : form == LogprobForm::entropy ? run_as(LogprobEntropy())
                                          : run_as(Logprob());
  }
};

/// Writes grad_logits, which may be the logits.
template <typename Backend>
void run_backward(const char* op, const LogprobBackwardInputs& inputs,
                  const at::Tensor& grad_logits) {
  const LogprobForm form = logprob_form(op, inputs.form);
  check_data<Backend>(op, inputs.forward(), form);
  if (Backend::computes(inputs.targets)) {
    const LogprobTensors in(inputs.forward(), form);
    const at::Tensor statistics = inputs.statistics.contiguous();
    std::vector<at::Tensor> held;
    const auto pointer = [&](const std::optional<at::Tensor>& tensor) -> const void* {
      return is_given(tensor) ? held.emplace_back(tensor->contiguous()).const_data_ptr() : nullptr;
    };
    Backend::launch(inputs.logits,
                    FusedLogprobBackwardArguments{
                        in.logits.const_data_ptr(), to_dtype(in.logits.scalar_type()), in.layout,
                        in.target_arguments, inputs.temperature, statistics.const_data_ptr(),
                        pointer(inputs.entropy), pointer(inputs.grad_logprob),
                        pointer(inputs.grad_lse), pointer(inputs.grad_entropy),
                        grad_logits.mutable_data_ptr(), readable_rows(grad_logits)});
  }
}

struct LogprobBackward {
  static constexpr const char* kName = "_fused_logprob_backward";

  template <typename Backend>
  static at::Tensor run(const LogprobBackwardInputs& inputs) {
    check_logprob_backward(kName, inputs);
    at::Tensor grad_logits = Backend::empty(inputs.logits.sym_sizes(), inputs.logits.options());
    run_backward<Backend>(kName, inputs, grad_logits);
    return grad_logits;
  }
};

struct BackwardInPlace {
  static constexpr const char* kName = "_fused_logprob_backward_";

  template <typename Backend>
  static void run(const LogprobBackwardInputs& inputs) {
    check_logprob_backward(kName, inputs);
    if constexpr (Backend::kKey != c10::DispatchKey::Meta) {
      const at::Tensor& logits = inputs.logits;
      const auto strides = [&] {
        return c10::str("strides ", logits.strides(), " of ", logits.sizes());
      };
      WARPFUSE_CHECK(at::has_internal_overlap(logits) != at::MemOverlap::Yes, kName, "logits",
                     "rows that share no memory", strides());
      // A copy would take the memory that writing in place is meant to save.
      WARPFUSE_CHECK(strided_rows(logits).has_value(), kName, "logits",
                     "dense columns and leading dimensions of at most two strides", strides());
    }
    run_backward<typename BackendFor<Backend, LogprobBackward>::type>(kName, inputs, inputs.logits);
  }
};

WARPFUSE_OPERATORS(m) {
  register_operator<Logprob>(m);
  register_operator<LogprobLse>(m);
  register_operator<LogprobEntropy>(m);
  register_operator<WithStatistics>(m);
  register_operator<LogprobBackward>(m);
  register_operator<BackwardInPlace>(m);
}

// --- the CPU ----------------------------------------------------------------------------------

Counter logprob_rows("cpu.logprob_rows");
Counter logprob_parts("cpu.logprob_parts");

/// Whether rows are too few for the threads, which then share them in parts.
bool shares_rows(const LogitRows& layout) {
  const bool few = layout.rows < at::get_num_threads() && layout.columns >= 4 * kElementsPerThread;
  (few ? logprob_parts : logprob_rows).add();
  return few;
}

int64_t parts_per_row(const LogitRows& layout) {
  return (layout.columns + kLogprobPartColumns - 1) / kLogprobPartColumns;
}

}  // namespace

void launch_cpu(const FusedLogprobArguments& arguments) {
  const LogitRows& layout = arguments.layout;
  if (shares_rows(layout)) {
    const int64_t count = layout.rows * parts_per_row(layout);
    std::vector<LogprobPart> parts(count);
    const LogprobParts<FusedLogprobArguments> in{arguments, parts_per_row(layout),
                                                 kLogprobPartColumns, parts.data()};
    parallel_rows(count, kLogprobPartColumns,
                  [&](int64_t begin, int64_t end) { fused_logprob_parts_cpu(in, begin, end); });
    fused_logprob_merge_cpu(in, 0, layout.rows);
    return;
  }
  // Uneven: ignored rows take no time and are often adjacent.
  parallel_uneven_rows(layout.rows, layout.columns, [&](int64_t begin, int64_t end) {
    fused_logprob_rows_cpu(arguments, begin, end);
  });
}

void launch_cpu(const FusedLogprobBackwardArguments& arguments) {
  const LogitRows& layout = arguments.layout;
  const bool in_parts = shares_rows(layout);
  const LogprobParts<FusedLogprobBackwardArguments> in{
      arguments, in_parts ? parts_per_row(layout) : 1,
      in_parts ? kLogprobPartColumns : layout.columns, nullptr};
  const auto kernel = [&](int64_t begin, int64_t end) {
    fused_logprob_backward_cpu(in, begin, end);
  };
  if (in_parts) {
    parallel_rows(layout.rows * in.parts_per_row, kLogprobPartColumns, kernel);
  } else {
    parallel_uneven_rows(layout.rows, layout.columns, kernel);
  }
}

}  // namespace warpfuse
