#include "bench/dropout.h"

#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/native_dropout.h>
#include <ATen/ops/native_dropout_backward.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <warpfuse/dispatch.h>
#include <warpfuse/dropout_softmax.h>
#include <warpfuse/softmax.h>

#include <functional>
#include <tuple>

#include "bench/reference.h"

namespace warpfuse::host::bench {
namespace {

using Call = std::function<at::Tensor(const InputSet&)>;
using Error = std::function<double(const InputSet&, const Outputs&)>;

bool softmax_first(const Case& c) { return c.op == Operator::softmax_dropout; }

// --- the plugin -------------------------------------------------------------------------------

struct Forward {
  at::Tensor output, statistics, rng;
};

Forward private_forward(const Case& c, const at::Tensor& scores,
                        const std::optional<at::Tensor>& rng) {
  static const auto op = detail::find_operator<std::tuple<at::Tensor, at::Tensor, at::Tensor>(
      const at::Tensor&, int64_t, double, bool, const std::optional<at::Tensor>&)>(
      "warpfuse::_dropout_softmax");
  auto [output, statistics, used] = op.call(scores, c.shape.dim, kDropoutP, softmax_first(c), rng);
  return {std::move(output), std::move(statistics), std::move(used)};
}

Call plugin_call(const Case& c) {
  const int64_t dim = c.shape.dim;
  const bool first = softmax_first(c);
  if (c.direction == Direction::forward) {
    return [dim, first](const InputSet& in) {
      return first ? softmax_dropout(in.scores, dim, kDropoutP)
                   : dropout_softmax(in.scores, dim, kDropoutP);
    };
  }
  return [dim, first](const InputSet& in) {
    return dropout_backward(in.grad_output, first ? in.scores : in.output, in.statistics, in.rng,
                            dim, first);
  };
}

// --- ATen -------------------------------------------------------------------------------------

std::tuple<at::Tensor, at::Tensor> aten_dropout(const at::Tensor& self) {
  return at::native_dropout(self, kDropoutP, /*train=*/true);
}

Call aten_call(const Case& c) {
  const int64_t dim = c.shape.dim;
  const bool first = softmax_first(c);
  if (c.direction == Direction::forward) {
    return [dim, first](const InputSet& in) {
      return first ? std::get<0>(aten_dropout(at::softmax(in.scores, dim)))
                   : at::softmax(std::get<0>(aten_dropout(in.scores)), dim);
    };
  }
  return [dim, first, dtype = c.dtype](const InputSet& in) {
    if (first) {
      return at::_softmax_backward_data(aten_dropout_backward(in.grad_output, in.keep), in.output,
                                        dim, dtype);
    }
    return aten_dropout_backward(at::_softmax_backward_data(in.grad_output, in.output, dim, dtype),
                                 in.keep);
  };
}

// --- the softmax alone ------------------------------------------------------------------------

Call softmax_call(const Case& c) {
  const int64_t dim = c.shape.dim;
  if (c.direction == Direction::forward) {
    return [dim](const InputSet& in) { return warpfuse::softmax(in.scores, dim); };
  }
  const auto op = detail::find_operator<at::Tensor(const at::Tensor&, const at::Tensor&, int64_t)>(
      "warpfuse::_softmax_backward");
  return [op, dim](const InputSet& in) { return op.call(in.grad_output, in.output, dim); };
}

// --- checks -----------------------------------------------------------------------------------

// The error of a forward that drew its random numbers itself; `kept` draws them once more. That of
// a backward, which is given them, needs nothing else.
Error error_with(const Case& c, const Call& kept) {
  if (c.direction != Direction::forward) {
    return nullptr;
  }
  return [c, kept](const InputSet& in, const Outputs& outputs) {
    InputSet known = in;
    rewind_generators();
    known.keep = kept(in);
    return error_of(c, known, outputs.result);
  };
}

}  // namespace

bool has_dropout(Operator op) {
  return op == Operator::dropout_softmax || op == Operator::softmax_dropout;
}

void add_dropout_state(InputSet& set, const Case& c, int64_t seed) {
  const at::TensorOptions index = at::TensorOptions(at::kLong).device(set.output.device());
  set.rng = at::tensor({seed, int64_t{0}}, at::kLong).to(index);
  set.keep = kept_by(set.output, set.rng);
  if (softmax_first(c)) {
    set.scores = set.output.clone();
    set.statistics = private_forward(c, set.scores, set.rng).statistics;
  } else {
    set.statistics = at::empty({0}, set.output.options());
  }
}

Case saved_forward(const Case& c) {
  Case saved = c;
  if (softmax_first(c)) {
    saved.op = Operator::softmax;
  }
  return saved;
}

std::vector<Variant> dropout_variants(const Case& c) {
  using enum Variant::Kind;
  const auto drawn_by_plugin = [c](const InputSet& in) {
    return kept_by(in.scores, private_forward(c, in.scores, std::nullopt).rng);
  };
  const auto drawn_by_aten = [c](const InputSet& in) {
    return std::get<1>(
        aten_dropout(softmax_first(c) ? at::softmax(in.scores, c.shape.dim) : in.scores));
  };
  Case softmax = c;
  softmax.op = Operator::softmax;
  return {
      {"warpfuse", plugin, plugin_call(c), Variant::Gives::result, error_with(c, drawn_by_plugin)},
      {"aten", aten, aten_call(c), Variant::Gives::result, error_with(c, drawn_by_aten)},
      {"softmax", plugin, softmax_call(c), Variant::Gives::result,
       [softmax](const InputSet& in, const Outputs& outputs) {
         return error_of(softmax, in, outputs.result);
       }}};
}

std::vector<std::string> dropout_operators(const Case& c) {
  std::vector<std::string> names{"warpfuse::_dropout_mask", "warpfuse::_dropout_softmax"};
  if (c.direction == Direction::forward) {
    names.push_back("warpfuse::" + name_in(kOperatorNames, c.op));
    names.emplace_back("warpfuse::softmax");
  } else {
    names.emplace_back("warpfuse::_dropout_softmax_backward");
    names.emplace_back("warpfuse::_softmax_backward");
  }
  return names;
}

at::Tensor kept_by(const at::Tensor& like, const at::Tensor& rng) {
  static const auto op =
      detail::find_operator<at::Tensor(const at::Tensor&, double, const at::Tensor&)>(
          "warpfuse::_dropout_mask");
  return op.call(like, kDropoutP, rng);
}

at::Tensor dropout_backward(const at::Tensor& grad_output, const at::Tensor& saved,
                            const at::Tensor& statistics, const at::Tensor& rng, int64_t dim,
                            bool softmax_first) {
  static const auto op =
      detail::find_operator<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                       const at::Tensor&, int64_t, double, bool)>(
          "warpfuse::_dropout_softmax_backward");
  return op.call(grad_output, saved, statistics, rng, dim, kDropoutP, softmax_first);
}

at::Tensor aten_dropout_backward(const at::Tensor& grad_output, const at::Tensor& keep) {
  return at::native_dropout_backward(grad_output, keep, 1 / (1 - kDropoutP));
}

}  // namespace warpfuse::host::bench
