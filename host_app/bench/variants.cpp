#include "bench/variants.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/softmax.h>
#include <fmt/format.h>
#include <warpfuse/dispatch.h>
#include <warpfuse/scaled_masked_softmax.h>
#include <warpfuse/softmax.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "bench/dropout.h"
#include "bench/linear_dropout.h"
#include "bench/logprob.h"
#include "bench/rules.h"

namespace warpfuse::host::bench {
namespace {

using Call = std::function<at::Tensor(const InputSet&)>;
using OptionalTensor = std::optional<at::Tensor>;

constexpr uint64_t kCheckSeed = 2020;

const char* causal_of(const Case& c) { return c.mask == Mask::causal ? "upper_left" : "none"; }

// --- the plugin -------------------------------------------------------------------------------

Call plugin_forward(const Case& c) {
  const int64_t dim = c.shape.dim;
  switch (c.op) {
    case Operator::softmax:
      return [dim](const InputSet& in) { return warpfuse::softmax(in.scores, dim); };
    case Operator::log_softmax:
      return [dim](const InputSet& in) { return warpfuse::log_softmax(in.scores, dim); };
    default:
      return [causal = causal_of(c)](const InputSet& in) {
        return scaled_masked_softmax(in.scores, kScale, in.attn_mask, causal, in.query_positions,
                                     in.key_lengths);
      };
  }
}

Call plugin_backward(const Case& c) {
  if (c.op != Operator::scaled_masked_softmax) {
    const auto op =
        detail::find_operator<at::Tensor(const at::Tensor&, const at::Tensor&, int64_t)>(
            c.op == Operator::softmax ? "warpfuse::_softmax_backward"
                                      : "warpfuse::_log_softmax_backward");
    return [op, dim = c.shape.dim](const InputSet& in) {
      return op.call(in.grad_output, in.output, dim);
    };
  }
  const auto op = detail::find_operator<at::Tensor(
      const at::Tensor&, const at::Tensor&, double, const OptionalTensor&, c10::string_view,
      const OptionalTensor&, const OptionalTensor&, int64_t, std::optional<double>)>(
      "warpfuse::_scaled_masked_softmax_backward");
  return [op, causal = causal_of(c)](const InputSet& in) {
    return op.call(in.grad_output, in.output, kScale, in.attn_mask, causal, in.query_positions,
                   in.key_lengths, 0, std::nullopt);
  };
}

Call algorithm(const Case& c, const std::string& name) {
  const auto op =
      detail::find_operator<at::Tensor(const at::Tensor&, int64_t, c10::string_view, bool)>(
          "warpfuse::_softmax_algorithm");
  return [op, name, dim = c.shape.dim, log = c.op == Operator::log_softmax](const InputSet& in) {
    return op.call(in.scores, dim, name, log);
  };
}

// --- ATen -------------------------------------------------------------------------------------

Call aten(const Case& c) {
  const int64_t dim = c.shape.dim;
  const c10::ScalarType dtype = c.dtype;
  const bool log = c.op == Operator::log_softmax;
  if (c.direction == Direction::forward) {
    return [dim, log](const InputSet& in) {
      return log ? at::log_softmax(in.scores, dim) : at::softmax(in.scores, dim);
    };
  }
  return [dim, dtype, log](const InputSet& in) {
    return log ? at::_log_softmax_backward_data(in.grad_output, in.output, dim, dtype)
               : at::_softmax_backward_data(in.grad_output, in.output, dim, dtype);
  };
}

at::Tensor chain_forward(const InputSet& in) {
  at::Tensor scores = in.scores.mul(kScale);
  if (in.hidden.defined()) {
    scores = scores.masked_fill(in.hidden, -std::numeric_limits<double>::infinity());
  } else if (in.attn_mask) {
    scores = scores.add(*in.attn_mask);
  }
  return at::softmax(scores, -1);
}

at::Tensor chain_backward(const InputSet& in) {
  at::Tensor grad =
      at::_softmax_backward_data(in.grad_output, in.output, -1, in.output.scalar_type());
  if (in.hidden.defined()) {
    grad = grad.masked_fill(in.hidden, 0.0);
  }
  return grad.mul(kScale);
}

std::vector<std::string> operators_of_row(const Case& c) {
  if (c.op == Operator::fused_logprob) {
    return logprob_operators(c.direction);
  }
  if (c.op == Operator::linear_dropout_softmax) {
    return linear_dropout_operators(c.direction);
  }
  if (has_dropout(c.op)) {
    return dropout_operators(c);
  }
  const char* form = c.direction == Direction::forward ? "warpfuse::{}" : "warpfuse::_{}_backward";
  return {fmt::format(fmt::runtime(form), name_in(kOperatorNames, c.op))};
}

}  // namespace

int64_t Outputs::bytes() const {
  auto sum = static_cast<int64_t>(result.nbytes());
  for (const at::Tensor& other : others) {
    sum += static_cast<int64_t>(other.nbytes());
  }
  return sum;
}

void Outputs::fill(double value) const {
  result.fill_(value);
  for (const at::Tensor& other : others) {
    other.fill_(value);
  }
}

std::vector<Variant> variants_of(const Case& c, const std::vector<std::string>& algorithms) {
  using enum Variant::Kind;
  if (c.op == Operator::fused_logprob) {
    return logprob_variants(c.direction);
  }
  if (c.op == Operator::linear_dropout_softmax) {
    return linear_dropout_variants(c);
  }
  if (has_dropout(c.op)) {
    return dropout_variants(c);
  }
  const bool forward = c.direction == Direction::forward;
  std::vector<Variant> variants{
      {"warpfuse", plugin, forward ? plugin_forward(c) : plugin_backward(c)}};
  if (c.op == Operator::scaled_masked_softmax) {
    variants.push_back({"chain", Variant::Kind::aten, forward ? chain_forward : chain_backward});
    return variants;
  }
  variants.push_back({"aten", Variant::Kind::aten, bench::aten(c)});
  if (forward) {
    for (const std::string& name : algorithms) {
      variants.push_back({name, Variant::Kind::algorithm, bench::algorithm(c, name)});
    }
  }
  return variants;
}

std::vector<std::string> operators_of(const std::vector<Case>& cases) {
  std::vector<std::string> names;
  for (const Case& c : cases) {
    for (const std::string& name : operators_of_row(c)) {
      if (std::ranges::find(names, name) == names.end()) {
        names.push_back(name);
      }
    }
  }
  return names;
}

const std::vector<std::string>& algorithm_names(bool cuda) {
  static const std::vector<std::string> of_cuda{"naive", "warp", "block", "cluster", "stream"};
  static const std::vector<std::string> of_cpu{"naive", "vector"};
  return cuda ? of_cuda : of_cpu;
}

void rewind_generators() { at::manual_seed(kCheckSeed); }

bool is_refusal(std::string_view message) {
  return message.find("_softmax_algorithm: algorithm: expected") != std::string_view::npos;
}

}  // namespace warpfuse::host::bench
