// softmax and log_softmax. ATen's softmax backward moves twice what it must: the product of
// gradient and output is a tensor.

#include <ATen/TensorOperators.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/softmax.h>
#include <fmt/format.h>
#include <warpfuse/dispatch.h>
#include <warpfuse/softmax.h>

#include "bench/suites/inputs.h"
#include "bench/suites/suites.h"

namespace warpfuse::host::bench {
namespace softmax_suite {
namespace {

constexpr const char* kAlgorithm = "warpfuse::_softmax_algorithm";

using Gradient = at::Tensor(const at::Tensor&, const at::Tensor&, int64_t);

// The plugin and ATen, forward and backward, of one of the two.
struct Functions {
  at::Tensor (*plugin)(const at::Tensor&, int64_t);
  at::Tensor (*aten)(const at::Tensor&, int64_t);
  Gradient* plugin_backward;
  Gradient* aten_backward;
};

const Functions kOfSoftmax{
    [](const at::Tensor& x, int64_t dim) { return warpfuse::softmax(x, dim); },
    [](const at::Tensor& x, int64_t dim) { return at::softmax(x, dim); },
    [](const at::Tensor& g, const at::Tensor& y, int64_t dim) {
      static const auto op = detail::find_operator<Gradient>("warpfuse::_softmax_backward");
      return op.call(g, y, dim);
    },
    [](const at::Tensor& g, const at::Tensor& y, int64_t dim) {
      return at::_softmax_backward_data(g, y, dim, y.scalar_type());
    }};
const Functions kOfLogSoftmax{
    [](const at::Tensor& x, int64_t dim) { return warpfuse::log_softmax(x, dim); },
    [](const at::Tensor& x, int64_t dim) { return at::log_softmax(x, dim); },
    [](const at::Tensor& g, const at::Tensor& y, int64_t dim) {
      static const auto op = detail::find_operator<Gradient>("warpfuse::_log_softmax_backward");
      return op.call(g, y, dim);
    },
    [](const at::Tensor& g, const at::Tensor& y, int64_t dim) {
      return at::_log_softmax_backward_data(g, y, dim, y.scalar_type());
    }};

bool is_log(const Case& c) { return c.op == &kLogSoftmax; }

struct Set {
  at::Tensor scores;               // forward
  at::Tensor output, grad_output;  // backward
};

Expected expected_of(const Case& c, const Set& set, const Part& part) {
  const auto in_double = [&](const at::Tensor& tensor) { return part(tensor).to(at::kDouble); };
  const int64_t dim = c.shape.dim;
  if (c.is_forward()) {
    const at::Tensor x = in_double(set.scores);
    const at::Tensor value = is_log(c) ? at::log_softmax(x, dim) : at::softmax(x, dim);
    return {value, is_log(c) ? value.abs() + 1 : value};
  }
  const at::Tensor y = in_double(set.output);
  const at::Tensor g = in_double(set.grad_output);
  if (!is_log(c)) {
    return softmax_gradient(y, g, y, dim);
  }
  const at::Tensor p = y.exp();
  return {g - p * g.sum(dim, true), g.abs() + p * g.abs().sum(dim, true)};
}

std::vector<Variant> variants(const Case& c, const Setup& setup) {
  using enum Variant::Kind;
  const Functions& f = is_log(c) ? kOfLogSoftmax : kOfSoftmax;
  const int64_t dim = c.shape.dim;
  const Sets<Set> sets = make_sets<Set>(setup);
  add_scores(*sets, c, setup,
             [&](const Set&, const at::Tensor& x, const Part&) { return f.aten(x, dim); });
  const auto error = against_pieces(sets, c, expected_of);
  const double tolerance = tolerance_of(c.dtype, /*of_aten=*/false);
  const double of_aten = tolerance_of(c.dtype, /*of_aten=*/true);
  const auto from_scores = [&](at::Tensor (*function)(const at::Tensor&, int64_t)) {
    return on(sets, [function, dim](const Set& in) { return function(in.scores, dim); });
  };
  const auto from_gradient = [&](Gradient* function) {
    return on(sets,
              [function, dim](const Set& in) { return function(in.grad_output, in.output, dim); });
  };
  if (!c.is_forward()) {
    return {{"warpfuse", plugin, from_gradient(f.plugin_backward), error, tolerance},
            {"aten", aten, from_gradient(f.aten_backward), error, of_aten}};
  }
  std::vector<Variant> all{{"warpfuse", plugin, from_scores(f.plugin), error, tolerance},
                           {"aten", aten, from_scores(f.aten), error, of_aten}};
  for (const std::string& name : setup.algorithms) {
    const auto op =
        detail::find_operator<at::Tensor(const at::Tensor&, int64_t, c10::string_view, bool)>(
            kAlgorithm);
    all.push_back({name, algorithm,
                   on(sets, [op, name, dim, log = is_log(c)](
                                const Set& in) { return op.call(in.scores, dim, name, log); }),
                   error, tolerance});
  }
  return all;
}

std::vector<std::string> operators(const Case& c) {
  const char* form = c.is_forward() ? "warpfuse::{}" : "warpfuse::_{}_backward";
  return {fmt::format(fmt::runtime(form), c.op->name)};
}

// Each element of the inputs is read once, each of the result is written once.
Bytes bytes(const Case& c) {
  const int64_t pass = c.bytes();
  const int64_t inputs = c.is_forward() ? pass : 2 * pass;
  const int64_t least = inputs + pass;
  return {.least = least,
          .fused = least,
          .unfused = c.is_forward() || is_log(c) ? least : 2 * least,
          .inputs = inputs};
}

const std::vector<std::string>& algorithm_names(bool cuda) {
  static const std::vector<std::string> of_cuda{"naive", "warp", "block", "cluster", "stream"};
  static const std::vector<std::string> of_cpu{"naive", "vector"};
  return cuda ? of_cuda : of_cpu;
}

constexpr Benchmark benchmark(std::string_view name) {
  return {.name = name,
          .family = "softmax",
          .algorithms = kAlgorithm,
          .algorithm_names = algorithm_names,
          .operators = operators,
          .bytes = bytes,
          .variants = variants};
}

}  // namespace
}  // namespace softmax_suite

constexpr Benchmark kSoftmax = softmax_suite::benchmark("softmax");
constexpr Benchmark kLogSoftmax = softmax_suite::benchmark("log_softmax");

}  // namespace warpfuse::host::bench
