#pragma once

#include <ATen/ops/empty_like.h>

#include <cmath>
#include <limits>
#include <memory>
#include <type_traits>

#include "bench/check.h"

namespace warpfuse::host::bench {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The inputs that a row's calls rotate over; the variants share them.
template <typename Set>
using Sets = std::shared_ptr<std::vector<Set>>;

// `count` tensors of one shape out of one allocation, each aligned as if it were allocated alone.
std::vector<at::Tensor> make_tensors(int64_t count, at::IntArrayRef sizes,
                                     const at::TensorOptions& options);

// Rewinds the generators of random numbers too.
void seed_inputs();

void fill_randomly(const at::Tensor& tensor);

// The part of a tensor that has one element per row, as a column.
at::Tensor column(const Part& part, const at::Tensor& tensor);

at::TensorOptions options_of(const Case& c, const Setup& setup);

// As many as the setup says, empty yet.
template <typename Set>
Sets<Set> make_sets(const Setup& setup) {
  seed_inputs();
  return std::make_shared<std::vector<Set>>(static_cast<size_t>(setup.sets));
}

// Gives each set a tensor of its own that `fill` has filled.
template <typename Set>
void add_tensors(std::vector<Set>& sets, std::type_identity_t<at::Tensor Set::*> member,
                 at::IntArrayRef sizes, const at::TensorOptions& options,
                 const Setup::Fill& fill = fill_randomly) {
  const auto tensors = make_tensors(static_cast<int64_t>(sets.size()), sizes, options);
  for (size_t i = 0; i < sets.size(); ++i) {
    fill(tensors[i]);
    sets[i].*member = tensors[i];
  }
}

// Random scores; for a backward the output of `forward`, which computes in double precision, and a
// random gradient of it.
template <typename Set, typename Forward>
void add_scores(std::vector<Set>& sets, const Case& c, const Setup& setup, const Forward& forward) {
  const at::TensorOptions options = options_of(c, setup);
  if (c.is_forward()) {
    add_tensors(sets, &Set::scores, c.shape.sizes, options, setup.scores);
    return;
  }
  add_tensors(sets, &Set::output, c.shape.sizes, options, setup.scores);
  for (const Set& set : sets) {
    for_each_piece(c.shape, [&](const Part& part) {
      part(set.output).copy_(forward(set, part(set.output).to(at::kDouble), part));
    });
  }
  add_tensors(sets, &Set::grad_output, c.shape.sizes, options);
}

// The call of a variant: `call` on the i-th set.
template <typename Set, typename Call>
std::function<Outputs(int64_t)> on(const Sets<Set>& sets, const Call& call) {
  return [sets, call](int64_t i) -> Outputs { return call((*sets)[static_cast<size_t>(i)]); };
}

// The check of a variant: `error` of the outputs for the first set.
template <typename Set, typename Error>
std::function<double(const Outputs&)> against(const Sets<Set>& sets, const Error& error) {
  return [sets, error](const Outputs& outputs) { return error(sets->front(), outputs); };
}

// The same, with the error of a result of the row's shape; `expected` of the row, a set and a
// piece.
template <typename Set>
std::function<double(const Outputs&)> against_pieces(const Sets<Set>& sets, const Case& c,
                                                     Expected (*expected)(const Case&, const Set&,
                                                                          const Part&),
                                                     double losses = 1) {
  return against(sets, [c, expected, losses](const Set& set, const Outputs& outputs) {
    return error_by_pieces(
        c, outputs.result, [&](const Part& part) { return expected(c, set, part); }, losses);
  });
}

// Shapes that several operators take, and what a message says of them.
inline constexpr std::string_view kRowShapes = "at least 2 sizes, and no other dim than the last,";
bool has_rows(const Shape& shape);
inline constexpr std::string_view kLinearShapes =
    "3 sizes, rows x in x out, and no other dim than the last,";
bool is_linear(const Shape& shape);

// A linear layer of rows x in x out.
struct LinearSizes {
  int64_t rows, in, out;

  explicit LinearSizes(const Shape& shape)
      : rows(shape.sizes[0]), in(shape.sizes[1]), out(shape.sizes[2]) {}
};

// Input, weight and bias, so that the results are spread as much as scores are elsewhere.
template <typename Set>
void add_linear(std::vector<Set>& sets, const LinearSizes& sizes, const at::TensorOptions& options,
                const Setup& setup) {
  const double spread = 1 / std::sqrt(static_cast<double>(sizes.in));
  add_tensors(sets, &Set::input, {sizes.rows, sizes.in}, options, setup.scores);
  add_tensors(sets, &Set::weight, {sizes.out, sizes.in}, options,
              [spread](const at::Tensor& weight) { weight.normal_(0, spread); });
  add_tensors(sets, &Set::bias, {sizes.out}, options);
}

// Whether a result is a token below `columns`, or -1, of each of rows of these sizes.
bool are_tokens(const at::Tensor& result, at::IntArrayRef rows, int64_t columns);
// The errors of such tokens, which are `errors` but where a row has no right one (`none`): there
// the plugin says -1, and ATen chooses a NaN.
at::Tensor token_errors(const at::Tensor& errors, const at::Tensor& tokens, const at::Tensor& none,
                        bool of_aten);

// Parts of the benchmarks with dropout: in training, with this probability.
inline constexpr double kDropoutP = 0.2;

// The inputs of a softmax with dropout.
struct DropoutSet {
  at::Tensor scores;
  // Backward: the softmax; a gradient of the forward's result; random numbers, other ones in each
  // set; the elements that they keep; and the plugin's statistics of the scores.
  at::Tensor output, grad_output, rng, keep, statistics;
};

// Which elements of a tensor the plugin's random numbers keep.
at::Tensor kept_by(const at::Tensor& like, const at::Tensor& rng);

// The random numbers of a set, and what they keep of the scores.
void draw_dropout(DropoutSet& set, int64_t seed);

// Random scores; for a backward the rest of a DropoutSet, whose statistics and softmax of a part of
// the scores, in double precision, are the caller's.
template <typename Set, typename Statistics, typename Softmax>
void add_dropout_scores(std::vector<Set>& sets, const Case& c, const Setup& setup,
                        const Statistics& statistics, const Softmax& softmax) {
  const at::TensorOptions options = options_of(c, setup);
  add_tensors(sets, &Set::scores, c.shape.sizes, options, setup.scores);
  if (c.is_forward()) {
    return;
  }
  for (size_t i = 0; i < sets.size(); ++i) {
    Set& set = sets[i];
    draw_dropout(set, static_cast<int64_t>(i));
    set.statistics = statistics(set);
    set.output = at::empty_like(set.scores);
    for_each_piece(c.shape, [&](const Part& part) {
      part(set.output).copy_(softmax(set, part(set.scores).to(at::kDouble), part));
    });
  }
  add_tensors(sets, &Set::grad_output, c.shape.sizes, options);
}

// The plugin's variant of another operator on the same row, on inputs of its own.
Variant plugin_variant(const Benchmark& op, const std::string& name, Case c, const Setup& setup);

// What dropout multiplies elements by, in double precision.
at::Tensor dropout_factors(const at::Tensor& keep);

// The plugin's backward; `statistics` has no elements where dropout came first.
at::Tensor dropout_backward(const at::Tensor& grad_output, const at::Tensor& saved,
                            const at::Tensor& statistics, const at::Tensor& rng, int64_t dim,
                            bool softmax_first);

// ATen's.
at::Tensor aten_dropout_backward(const at::Tensor& grad_output, const at::Tensor& keep);

// The check of a result. `kept` draws the random numbers of a forward once more; a backward's are
// the set's. `expected_of` gives a part in double precision.
template <typename Set>
std::function<double(const Outputs&)> dropout_error(
    const Case& c, const Sets<Set>& sets, at::Tensor (*kept)(const Case&, const Set&),
    Expected (*expected_of)(const Case&, const Set&, const at::Tensor&, const Part&)) {
  return against(sets, [=](const Set& in, const Outputs& outputs) {
    rewind_generators();
    const at::Tensor keep = c.is_forward() ? kept(c, in) : in.keep;
    return error_by_pieces(
        c, outputs.result, [&](const Part& part) { return expected_of(c, in, keep, part); },
        c.is_forward() ? 2 : 1 + kMaxGradient / (1 - kDropoutP));
  });
}

}  // namespace warpfuse::host::bench
