#pragma once

#include <memory>
#include <vector>

#include "bench/check.h"

namespace warpfuse::host::bench {

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
void add_tensors(std::vector<Set>& sets, at::Tensor Set::* member, at::IntArrayRef sizes,
                 const at::TensorOptions& options, const Setup::Fill& fill = fill_randomly) {
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

}  // namespace warpfuse::host::bench
