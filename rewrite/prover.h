#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "deform.h"
#include "layout.h"
#include "operand.h"
#include "samples.h"

namespace warpfuse::rewriting {

// Proves one sum. What stops it is its note.
class Prover {
 public:
  Prover(const SampledSum& sum, Facts& facts, const Writes& writes)
      : sum_(sum), facts_(facts), writes_(writes) {}

  Deform prove();

 private:
  bool samples_bilinearly();
  bool take_value();
  bool take_locations();
  bool take_levels();
  bool take_weights();
  bool weights_fit(const WeightedSamples& term, const Layout& weights, Equalities& sizes);
  std::optional<Layout> joined(const WeightedSamples& term, Equalities& sizes) const;
  bool sums_points(const WeightedSamples& term, Layout samples);
  bool take_output();
  bool accepts_dtypes();
  bool is_never_written();
  bool accepts_sizes();
  bool has_other_use(const torch::jit::Node* node) const;

  bool stop(const char* why) {
    deform_.note = why;
    return false;
  }
  int64_t level_count() const { return static_cast<int64_t>(deform_.samplers.size()); }
  // The first tensor from `use` upwards that `fits` takes, with the sizes that follow from it; one
  // whose levels and points are two dimensions, if there is one.
  bool find(OperandKind kind, torch::jit::Value* use, std::optional<int64_t> rank, Operand& operand,
            const std::function<bool(const Operand&, Equalities&)>& fits);
  // How `tensor` becomes `use`.
  std::optional<Layout> layout_at(torch::jit::Value* use, std::optional<int64_t> rank,
                                  const Operand& operand, Equalities& sizes);

  const SampledSum& sum_;
  Facts& facts_;
  const Writes& writes_;
  Deform deform_;
  Equalities sizes_;                         // that follow where ATen raises no error
  std::vector<Layout> images_, grids_;       // by sampler
  std::set<const torch::jit::Node*> steps_;  // on the way to an operand
  std::vector<const torch::jit::Value*> read_;
};

}  // namespace warpfuse::rewriting
