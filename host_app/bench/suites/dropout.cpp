// dropout_softmax and softmax_dropout, in training. ATen's are native_dropout and softmax in their
// order, with the backward kernels that autograd calls for them; "softmax" is the plugin's softmax
// alone, so that the difference is what dropout costs.
//
// A forward draws its random numbers itself. The public operator is timed and checked: for the
// check the generator is rewound before it, and once more before the private operator, which then
// draws the same and says what it drew.

#include <ATen/TensorOperators.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/native_dropout.h>
#include <ATen/ops/softmax.h>
#include <warpfuse/dispatch.h>
#include <warpfuse/dropout_softmax.h>

#include <tuple>

#include "bench/suites/inputs.h"
#include "bench/suites/suites.h"

namespace warpfuse::host::bench {
namespace dropout_suite {
namespace {

using Set = DropoutSet;

bool softmax_first(const Case& c) { return c.op == &kSoftmaxDropout; }

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

at::Tensor kept_by_plugin(const Case& c, const Set& in) {
  return kept_by(in.scores, private_forward(c, in.scores, std::nullopt).rng);
}

// --- ATen -------------------------------------------------------------------------------------

std::tuple<at::Tensor, at::Tensor> aten_dropout(const at::Tensor& self) {
  return at::native_dropout(self, kDropoutP, /*train=*/true);
}

at::Tensor kept_by_aten(const Case& c, const Set& in) {
  return std::get<1>(
      aten_dropout(softmax_first(c) ? at::softmax(in.scores, c.shape.dim) : in.scores));
}

at::Tensor aten_forward(const Set& in, int64_t dim, bool first) {
  return first ? std::get<0>(aten_dropout(at::softmax(in.scores, dim)))
               : at::softmax(std::get<0>(aten_dropout(in.scores)), dim);
}

at::Tensor aten_backward(const Set& in, int64_t dim, bool first) {
  const c10::ScalarType dtype = in.output.scalar_type();
  return first ? at::_softmax_backward_data(aten_dropout_backward(in.grad_output, in.keep),
                                            in.output, dim, dtype)
               : aten_dropout_backward(
                     at::_softmax_backward_data(in.grad_output, in.output, dim, dtype), in.keep);
}

// --- inputs -----------------------------------------------------------------------------------

// The backward of dropout_softmax is given neither scores nor statistics.
Sets<Set> make_inputs(const Case& c, const Setup& setup) {
  Sets<Set> sets = make_sets<Set>(setup);
  const bool first = softmax_first(c);
  add_dropout_scores(
      *sets, c, setup,
      [&](const Set& set) {
        return first ? private_forward(c, set.scores, set.rng).statistics
                     : at::empty({0}, set.scores.options());
      },
      [&](const Set& set, const at::Tensor& x, const Part& part) {
        return at::softmax(first ? x : x * dropout_factors(part(set.keep)), c.shape.dim);
      });
  if (!c.is_forward() && !first) {
    std::ranges::for_each(*sets, [](Set& set) { set.scores.reset(); });
  }
  return sets;
}

// --- checks -----------------------------------------------------------------------------------

Expected expected_of(const Case& c, const Set& in, const at::Tensor& keep, const Part& part) {
  const int64_t dim = c.shape.dim;
  const at::Tensor k = dropout_factors(part(keep));
  const bool first = softmax_first(c);
  if (c.is_forward()) {
    const at::Tensor x = part(in.scores).to(at::kDouble);
    const at::Tensor value = first ? at::softmax(x, dim) * k : at::softmax(x * k, dim);
    return {value, value};
  }
  const at::Tensor g = part(in.grad_output).to(at::kDouble);
  if (first) {
    const at::Tensor y = at::softmax(part(in.scores).to(at::kDouble), dim);
    return softmax_gradient(y, g * k, y, dim);
  }
  const at::Tensor y = part(in.output).to(at::kDouble);
  return softmax_gradient(y, g, y * k, dim);
}

// With another dim than the last the plugin rounds between two kernels, as ATen does;
// softmax_dropout's backward rounds twice, the softmax as a saved one would be, and the gradient.
double tolerance(const Case& c, bool of_aten) {
  const bool twice = softmax_first(c) && !c.is_forward();
  return tolerance_of(c.dtype, of_aten || c.shape.dim != -1) * (twice ? 2 : 1);
}

// --- the benchmark ----------------------------------------------------------------------------

std::function<Outputs(int64_t)> plugin_call(const Case& c, const Sets<Set>& sets) {
  const int64_t dim = c.shape.dim;
  const bool first = softmax_first(c);
  if (c.is_forward()) {
    return on(sets, [dim, first](const Set& in) {
      return first ? softmax_dropout(in.scores, dim, kDropoutP)
                   : dropout_softmax(in.scores, dim, kDropoutP);
    });
  }
  return on(sets, [dim, first](const Set& in) {
    return dropout_backward(in.grad_output, first ? in.scores : in.output, in.statistics, in.rng,
                            dim, first);
  });
}

std::vector<Variant> variants(const Case& c, const Setup& setup) {
  using enum Variant::Kind;
  const Sets<Set> sets = make_inputs(c, setup);
  const auto aten_call = [dim = c.shape.dim, first = softmax_first(c),
                          call = c.is_forward() ? aten_forward : aten_backward](const Set& in) {
    return call(in, dim, first);
  };
  return {{"warpfuse", plugin, plugin_call(c, sets),
           dropout_error(c, sets, kept_by_plugin, expected_of), tolerance(c, /*of_aten=*/false)},
          {"aten", aten, on(sets, aten_call), dropout_error(c, sets, kept_by_aten, expected_of),
           tolerance(c, /*of_aten=*/true)},
          plugin_variant(kSoftmax, "softmax", c, setup)};
}

std::vector<std::string> operators(const Case& c) {
  std::vector<std::string> names{"warpfuse::_dropout_mask", "warpfuse::_dropout_softmax"};
  if (c.is_forward()) {
    names.push_back("warpfuse::" + std::string(c.op->name));
    names.emplace_back("warpfuse::softmax");
  } else {
    names.emplace_back("warpfuse::_dropout_softmax_backward");
    names.emplace_back("warpfuse::_softmax_backward");
  }
  return names;
}

// Dropout adds nothing to a softmax's bytes, but that softmax_dropout's backward reads two numbers
// per row. Unfused it is a kernel more, which reads and writes all, and a mask of 1 byte per
// element.
Bytes bytes(const Case& c) {
  const int64_t elements = c.shape.elements();
  const int64_t pass = elements * c.element_bytes();
  const int64_t inputs = c.is_forward() ? pass : 2 * pass;
  const int64_t statistics = softmax_first(c) && !c.is_forward() ? c.rows() * 2 * c.sum_bytes() : 0;
  const int64_t least = inputs + pass + statistics;
  return {.least = least,
          .fused = least,
          .unfused = (c.is_forward() ? 2 : 6) * pass + 2 * pass + elements,
          .inputs = inputs};
}

constexpr Benchmark benchmark(std::string_view name) {
  return {.name = name,
          .family = "softmax",
          .operators = operators,
          .bytes = bytes,
          .variants = variants};
}

}  // namespace
}  // namespace dropout_suite

constexpr Benchmark kDropoutSoftmax = dropout_suite::benchmark("dropout_softmax");
constexpr Benchmark kSoftmaxDropout = dropout_suite::benchmark("softmax_dropout");

}  // namespace warpfuse::host::bench
