#include "deform.h"

#include "prover.h"
#include "samples.h"

namespace warpfuse::rewriting {

Deform Prover::prove() {
  for (const WeightedSamples& term : sum_.terms) {
    deform_.samplers.insert(deform_.samplers.end(), term.samplers.begin(), term.samplers.end());
  }
  if (deform_.samplers.empty()) {
    deform_.samplers = sum_.samplers;
    deform_.note = sum_.note;
  }
  deform_.is_left = sum_.terms.empty() || !samples_bilinearly() || !take_value() ||
                    !take_locations() || !take_levels() || !take_weights() || !take_output() ||
                    !accepts_dtypes() || !is_never_written() || !accepts_sizes();
  const size_t count = deform_.samplers.size();
  deform_.form = {count > 1 ? std::to_string(count) + " grid_sample" : "grid_sample"};
  if (!deform_.is_left) {
    deform_.form.insert(deform_.form.end(), {"mul", "sum"});
    if (deform_.softmax != nullptr) {
      deform_.form.insert(deform_.form.begin(), "softmax");
    }
  }
  return deform_;
}

std::vector<Deform> deformable_attentions(torch::jit::Graph& graph, Facts& facts,
                                          const Writes& writes) {
  std::vector<Deform> deforms;
  for (const SampledSum& sum : sampled_sums(graph, facts)) {
    deforms.push_back(Prover(sum, facts, writes).prove());
  }
  return deforms;
}

}  // namespace warpfuse::rewriting
