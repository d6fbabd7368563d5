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

// The call of a variant: `call` on the i-th set.
template <typename Set, typename Call>
std::function<Outputs(int64_t)> on(const Sets<Set>& sets, Call call) {
  return [sets, call](int64_t i) -> Outputs { return call((*sets)[static_cast<size_t>(i)]); };
}

// The check of a variant: `error` of the outputs for the first set.
template <typename Set, typename Error>
std::function<double(const Outputs&)> against(const Sets<Set>& sets, Error error) {
  return [sets, error](const Outputs& outputs) { return error(sets->front(), outputs); };
}

}  // namespace warpfuse::host::bench
