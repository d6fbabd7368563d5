#include <algorithm>
#include <functional>
#include <set>

#include "prover.h"
#include "regroup.h"

namespace warpfuse::rewriting {

namespace jit = torch::jit;

// The samples of a term as its product reads them.
std::optional<Layout> Prover::joined(const WeightedSamples& term, Equalities& sizes) const {
  const Layout &image = images_[0], &grid = grids_[0];
  Layout samples{.dims = {image.dims[0], image.dims[1], grid.dims[1], grid.dims[2]}};
  if (term.join != nullptr) {
    const bool is_stack = term.join->kind() == jit::aten::stack;
    const std::optional<int64_t> at = facts_.dim(term.join, "dim", is_stack ? 5 : 4);
    if (!at || (!is_stack && *at != 3)) {
      return std::nullopt;
    }
    if (is_stack) {
      samples.dims.insert(samples.dims.begin() + *at, std::vector<Axis>());
    }
    if (level_count() > 1) {
      samples.dims[*at].insert(samples.dims[*at].begin(),
                               Axis{.role = Role::level, .size = {0, level_count()}});
    }
  }
  return applied({nullptr, {}, term.steps}, samples, facts_, sizes);
}

// Whether something beside this sum reads what a node on the way to it computes.
// NOLINTNEXTLINE(misc-no-recursion): it follows the uses.
bool Prover::has_other_use(const jit::Node* node) const {
  return std::ranges::any_of(node->outputs(), [&](const jit::Value* output) {
    return std::ranges::any_of(output->uses(), [&](const jit::Use& use) {
      const bool is_product =
          std::ranges::count(sum_.terms, use.user, &WeightedSamples::product) > 0;
      const bool is_on_the_way =
          steps_.contains(use.user) || use.user->kind() == jit::prim::ListUnpack;
      return !is_product && (!is_on_the_way || has_other_use(use.user));
    });
  });
}

// The weights broadcast over channels alone.
bool Prover::weights_fit(const WeightedSamples& term, const Layout& weights, Equalities& sizes) {
  const std::optional<Layout> samples = joined(term, sizes);
  if (!samples || weights.dims.size() != samples->dims.size() || weights.doubled != 0) {
    return false;
  }
  for (size_t i = 0; i < weights.dims.size(); ++i) {
    const std::vector<Axis>&ours = samples->dims[i], &theirs = weights.dims[i];
    const bool is_channel = ours.size() == 1 && ours[0].role == Role::channel;
    if (is_channel && theirs.empty()) {
      continue;
    }
    const Product a = product_of_axes(ours, sizes), b = product_of_axes(theirs, sizes);
    // Two sizes above 1 are equal, or ATen raises an error.
    const bool are_above_one = a.number > 1 && b.number > 1;
    if (!sizes.are_equal(a, b) && !(are_above_one && sizes.equate(a, b))) {
      return false;
    }
    const bool are_same = std::ranges::equal(ours, theirs, [&](const Axis& x, const Axis& y) {
      return x.role == y.role && sizes.resolved(x.size) == sizes.resolved(y.size);
    });
    if (!are_same) {
      return false;
    }
  }
  return true;
}

// Sums over levels and points leave [batch * heads, channels, queries].
bool Prover::sums_points(const WeightedSamples& term, Layout samples) {
  const auto dims = facts_.integers(Facts::argument(term.sum, "dim"));
  const std::optional<c10::IValue> keeps = facts_.constant_argument(term.sum, "keepdim");
  if (!dims || !keeps || keeps->toBool() || !facts_.is_none(term.sum, "dtype")) {
    return false;
  }
  std::set<int64_t, std::greater<>> summed;
  for (const Integer& dim : *dims) {
    const std::optional<int64_t> at = from_front(dim.known(), samples.dims.size());
    if (!at) {
      return false;
    }
    summed.insert(*at);
  }
  for (const int64_t dim : summed) {
    const bool is_point = std::ranges::all_of(samples.dims[dim], [](const Axis& axis) {
      return axis.role == Role::level || axis.role == Role::point;
    });
    if (!is_point) {
      return false;
    }
    samples.dims.erase(samples.dims.begin() + dim);
  }
  return has_roles(samples, {{Role::batch, Role::head}, {Role::channel}, {Role::query}});
}

bool Prover::take_weights() {
  jit::Node* softmax = nullptr;
  const auto fits = [&](const Operand& candidate, Equalities& sizes, bool is_softmax) {
    size_t next = 0;  // sampler
    for (const WeightedSamples& term : sum_.terms) {
      const std::optional<Layout> weights = layout_at(term.weights, std::nullopt, candidate, sizes);
      if (!weights || (weights->softmax != nullptr) != is_softmax ||
          !weights_fit(term, *weights, sizes)) {
        return false;
      }
      softmax = weights->softmax;
      // The weights of a join are those of its samples in order.
      for (size_t i = 0; i < term.samplers.size(); ++i, ++next) {
        const int64_t level = term.join != nullptr && term.samplers.size() > 1
                                  ? static_cast<int64_t>(i)
                                  : weights->level.value_or(0);
        if (level != grids_[next].level.value_or(0)) {
          return false;
        }
      }
    }
    return softmax == nullptr || !has_other_use(softmax);
  };
  for (const bool is_softmax : {true, false}) {
    const auto fits_this = [&](const Operand& candidate, Equalities& sizes) {
      return fits(candidate, sizes, is_softmax);
    };
    if (find(OperandKind::weights, sum_.terms[0].weights, std::nullopt, deform_.weights,
             fits_this)) {
      deform_.softmax = softmax;
      return std::ranges::all_of(sum_.terms,
                                 [&](const WeightedSamples& term) {
                                   const std::optional<Layout> samples = joined(term, sizes_);
                                   return samples && sums_points(term, *samples);
                                 }) ||
             stop("the sum is not over levels and points");
    }
  }
  return stop("no weights [batch, queries, heads, levels, points] are proved");
}

}  // namespace warpfuse::rewriting
