#include "deform.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "regroup.h"
#include "samples.h"

namespace warpfuse::rewriting {
namespace {

namespace jit = torch::jit;

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
  bool has_other_use(const jit::Node* node) const;

  bool stop(const char* why) {
    deform_.note = why;
    return false;
  }
  int64_t level_count() const { return static_cast<int64_t>(deform_.samplers.size()); }
  // The first tensor from `use` upwards that `fits` takes, with the sizes that follow from it; one
  // whose levels and points are two dimensions, if there is one.
  template <typename Fits>
  bool find(OperandKind kind, jit::Value* use, std::optional<int64_t> rank, Operand& operand,
            const Fits& fits);
  // How `tensor` becomes `use`.
  std::optional<Layout> layout_at(jit::Value* use, std::optional<int64_t> rank,
                                  const Operand& operand, Equalities& sizes);

  const SampledSum& sum_;
  Facts& facts_;
  const Writes& writes_;
  Deform deform_;
  Equalities sizes_;                    // that follow where ATen raises no error
  std::vector<Layout> images_, grids_;  // by sampler
  std::set<const jit::Node*> steps_;    // on the way to an operand
  std::vector<const jit::Value*> read_;
};

bool Prover::samples_bilinearly() {
  return std::ranges::all_of(deform_.samplers,
                             [&](jit::Node* node) {
                               const std::optional<c10::IValue> aligned =
                                   facts_.constant_argument(node, "align_corners");
                               return facts_.known_integer(node, "interpolation_mode") == 0 &&
                                      facts_.known_integer(node, "padding_mode") == 0 && aligned &&
                                      aligned->isBool() && !aligned->toBool();
                             }) ||
         stop("it does not sample bilinearly with zeros outside and align_corners=False");
}

std::optional<Layout> Prover::layout_at(jit::Value* use, std::optional<int64_t> rank,
                                        const Operand& operand, Equalities& sizes) {
  for (const Route& route : routes_to(use, rank, facts_)) {
    if (route.tensor == operand.tensor) {
      for (const Step& step : route.steps) {
        steps_.insert(step.node);
      }
      return applied(route, layout_of(operand.dims, sizes), facts_, sizes);
    }
  }
  return std::nullopt;
}

template <typename Fits>
bool Prover::find(OperandKind kind, jit::Value* use, std::optional<int64_t> rank, Operand& operand,
                  const Fits& fits) {
  const std::vector<Route> routes = routes_to(use, rank, facts_);
  for (const bool is_merged : {false, true}) {
    for (const Route& route : routes) {
      Equalities sizes = sizes_;
      const std::optional<Operand> candidate =
          operand_of(kind, route, level_count(), facts_, sizes);
      if (candidate && candidate->has_merged_points == is_merged && fits(*candidate, sizes)) {
        operand = *candidate;
        sizes_ = std::move(sizes);
        return true;
      }
    }
  }
  return false;
}

// [batch * heads, channels, height, width], the pixels of one level in order.
bool is_image(Layout& image) {
  if (image.dims.size() != 4 || !image.pixels || image.doubled != 0 || image.softmax != nullptr) {
    return false;
  }
  const std::vector<Axis>&rows = image.dims[2], &columns = image.dims[3];
  const auto are_pixels = [](const std::vector<Axis>& dim, bool Axis::* other) {
    return dim.empty() || (dim.size() == 1 && dim[0].role == Role::pixel && !(dim[0].*other));
  };
  Layout pixels_apart = image;
  pixels_apart.dims.resize(2);
  return are_pixels(rows, &Axis::is_column) && are_pixels(columns, &Axis::is_row) &&
         has_roles(pixels_apart, {{Role::batch, Role::head}, {Role::channel}});
}

int64_t count_of_pixels(const std::vector<Axis>& dim) {
  return dim.empty() ? 1 : dim[0].size.constant;
}

bool Prover::take_value() {
  const auto fits = [&](const Operand& candidate, Equalities& sizes) {
    images_.clear();
    return std::ranges::all_of(deform_.samplers, [&](jit::Node* sampler) {
      std::optional<Layout> image = layout_at(sampler->input(0), std::nullopt, candidate, sizes);
      if (!image || !is_image(*image)) {
        return false;
      }
      images_.push_back(*image);
      return true;
    });
  };
  return find(OperandKind::value, deform_.samplers[0]->input(0), std::nullopt, deform_.value,
              fits) ||
         stop("no value [batch, pixels, heads, channels] of levels of constant sizes is proved");
}

bool Prover::take_locations() {
  const auto fits = [&](const Operand& candidate, Equalities& sizes) {
    grids_.clear();
    for (size_t i = 0; i < deform_.samplers.size(); ++i) {
      // As many dimensions as the image.
      std::optional<Layout> grid = layout_at(deform_.samplers[i]->input(1), 4, candidate, sizes);
      const bool is_grid =
          grid && grid->doubled == 2 && grid->softmax == nullptr &&
          (grid->level || level_count() == 1) &&
          has_roles(*grid,
                    {{Role::batch, Role::head}, {Role::query}, {Role::point}, {Role::coordinate}});
      if (!is_grid || !sizes.equate(product_of_axes(grid->dims[0], sizes),
                                    product_of_axes(images_[i].dims[0], sizes))) {
        return false;
      }
      grids_.push_back(*grid);
    }
    return true;
  };
  return find(OperandKind::locations, deform_.samplers[0]->input(1), 4, deform_.locations, fits) ||
         stop("no locations [batch, queries, heads, levels, points, 2] are proved");
}

// Samplers in the order of their levels, which are the value's pixels from the first on.
bool Prover::take_levels() {
  const auto count = static_cast<size_t>(level_count());
  std::vector<size_t> sampler_of_level(count, count);
  for (size_t i = 0; i < count; ++i) {
    const auto level = static_cast<size_t>(grids_[i].level.value_or(0));
    if (level >= count || sampler_of_level[level] != count) {
      return stop("the levels of the locations are not each sampled once");
    }
    sampler_of_level[level] = i;
  }
  int64_t first = 0;
  for (const size_t i : sampler_of_level) {
    const Layout& image = images_[i];
    const int64_t height = count_of_pixels(image.dims[2]), width = count_of_pixels(image.dims[3]);
    if (image.first_pixel != first || height * width != *image.pixels) {
      return stop("the levels are not the value's pixels in order");
    }
    deform_.levels.emplace_back(height, width);
    first += height * width;
  }
  return true;
}

// The samples of a term as its product reads them.
std::optional<Layout> Prover::joined(const WeightedSamples& term, Equalities& sizes) const {
  const Layout &image = images_[0], &grid = grids_[0];
  Layout samples{.dims = {image.dims[0], image.dims[1], grid.dims[1], grid.dims[2]}};
  if (term.join != nullptr) {
    const bool is_stack = term.join->kind() == jit::aten::stack;
    const int64_t rank = is_stack ? 5 : 4;
    const std::optional<int64_t> dim = facts_.known_integer(term.join, "dim");
    const int64_t at = dim && *dim < 0 ? *dim + rank : dim.value_or(-1);
    if (at < 0 || at >= rank || (!is_stack && at != 3)) {
      return std::nullopt;
    }
    if (is_stack) {
      samples.dims.insert(samples.dims.begin() + at, std::vector<Axis>());
    }
    if (level_count() > 1) {
      samples.dims[at].insert(samples.dims[at].begin(),
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
  const auto rank = static_cast<int64_t>(samples.dims.size());
  for (const Integer& dim : *dims) {
    if (!dim.known()) {
      return false;
    }
    summed.insert(dim.constant < 0 ? dim.constant + rank : dim.constant);
  }
  for (const int64_t dim : summed) {
    const bool is_point =
        dim >= 0 && dim < rank &&
        std::ranges::all_of(
            samples.dims[dim],
            [](const Axis& axis) { return axis.role == Role::level || axis.role == Role::point; });
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

// Downwards to [batch, queries, heads * channels].
bool Prover::take_output() {
  Layout layout{.dims = {images_[0].dims[0], images_[0].dims[1], grids_[0].dims[1]}};
  jit::Value* output = sum_.result;
  const auto only_user = [&](jit::Value* value) -> jit::Node* {
    const bool is_only = value->uses().size() == 1 && value->uses()[0].offset == 0;
    jit::Node* user = is_only ? value->uses()[0].user : nullptr;
    return user != nullptr && user->owningBlock() == value->node()->owningBlock() ? user : nullptr;
  };
  while (!has_roles(layout, {{Role::batch}, {Role::query}, {Role::head, Role::channel}})) {
    if (output->uses().size() > 1) {
      return stop("the sum has another use");
    }
    jit::Node* user = only_user(output);
    const std::optional<Step> step =
        user != nullptr && user->outputs().size() == 1 ? step_of(user->output()) : std::nullopt;
    if (!step || step->node != user || !apply(*step, layout, facts_, sizes_) ||
        layout.doubled != 0) {
      return stop("the sum does not become [batch, queries, heads * channels]");
    }
    output = user->output();
    read_.push_back(output);
  }
  jit::Node* user = only_user(output);
  if (user != nullptr && user->kind() == jit::aten::contiguous) {
    output = user->output();
  }
  deform_.output = output;
  return true;
}

// The operator gives the value's dtype. Half precision that is widened before and narrowed behind
// is the operator's own way.
bool Prover::accepts_dtypes() {
  const std::optional<c10::ScalarType> value = facts_.of(deform_.value.tensor).dtype;
  const std::optional<c10::ScalarType> weights = facts_.of(deform_.weights.tensor).dtype;
  if (!value || !weights) {
    return stop("the dtypes of value and weights are unknown");
  }
  if (*value != *weights) {
    return stop("value and weights have other dtypes");
  }
  jit::Value* output = deform_.output;
  jit::Node* user = output->uses().size() == 1 ? output->uses()[0].user : nullptr;
  if (user == nullptr || user->kind() != jit::aten::to ||
      Facts::argument(user, "device") != nullptr ||
      user->owningBlock() != output->node()->owningBlock()) {
    return true;
  }
  jit::Node* widening = deform_.value.tensor->node();
  const std::optional<c10::IValue> dtype = facts_.constant_argument(user, "dtype");
  const std::optional<c10::ScalarType> after =
      dtype && dtype->isInt() ? std::optional(static_cast<c10::ScalarType>(dtype->toInt()))
                              : std::nullopt;
  const bool is_narrowed = widening->kind() == jit::aten::to && value == c10::kFloat && after &&
                           facts_.of(widening->input(0)).dtype == after &&
                           (after == c10::kHalf || after == c10::kBFloat16);
  if (is_narrowed) {
    deform_.value.tensor = widening->input(0);
    read_.push_back(deform_.value.tensor);
  }
  if (is_narrowed || after == value) {
    deform_.output = user->output();
  }
  return true;
}

bool Prover::is_never_written() {
  for (const Operand* operand : {&deform_.value, &deform_.locations, &deform_.weights}) {
    read_.push_back(operand->tensor);
  }
  for (const jit::Node* node : steps_) {
    std::ranges::copy(node->outputs(), std::back_inserter(read_));
  }
  for (const jit::Node* sampler : deform_.samplers) {
    read_.push_back(sampler->output());
  }
  for (const WeightedSamples& term : sum_.terms) {
    for (const Step& step : term.steps) {
      read_.push_back(step.node->output());
    }
    read_.insert(read_.end(), {term.product->output(), term.sum->output()});
  }
  read_.insert(read_.end(), {sum_.result, deform_.output});
  return std::ranges::none_of(read_,
                              [&](const jit::Value* value) { return writes_.reach(value); }) ||
         stop("written to in place");
}

// Sizes that ATen's operators ask for, and an error otherwise: this operator asks for them too, or
// a view does.
bool Prover::accepts_sizes() {
  Equalities asked;
  Operand* const operands[] = {&deform_.value, &deform_.locations, &deform_.weights};
  for (Operand* operand : operands) {
    learn_from_broadcast(operand->tensor, static_cast<int64_t>(operand->dims.size()), facts_,
                         asked);
  }
  for (const Role role : {Role::batch, Role::head, Role::query, Role::level, Role::point}) {
    std::optional<Integer> first;
    for (Operand* operand : operands) {
      for (const std::vector<Axis>& dim : operand->dims) {
        for (const Axis& axis : dim) {
          if (axis.role == role && first) {
            asked.equate(*first, axis.size);
          } else if (axis.role == role) {
            first = axis.size;
          }
        }
      }
    }
  }
  for (Operand* operand : operands) {
    for (size_t i = 0; i < operand->dims.size(); ++i) {
      const Axis& axis = operand->dims[i][0];
      const std::optional<int64_t> size = sizes_.resolved(axis.size).known();
      if (size && operand->dims[i].size() == 1 && !asked.resolved(axis.size).known()) {
        operand->checked_sizes.emplace_back(i, *size);
        asked.equate(axis.size, {0, *size});
      }
    }
  }
  const auto& taken = sizes_.taken();
  return std::ranges::all_of(taken,
                             [&](const std::pair<Integer, Integer>& sizes) {
                               return asked.resolved(sizes.first) == asked.resolved(sizes.second);
                             }) ||
         stop("a size in it is that of another tensor");
}

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

}  // namespace

std::vector<Deform> deformable_attentions(jit::Graph& graph, Facts& facts, const Writes& writes) {
  std::vector<Deform> deforms;
  for (const SampledSum& sum : sampled_sums(graph, facts)) {
    deforms.push_back(Prover(sum, facts, writes).prove());
  }
  return deforms;
}

}  // namespace warpfuse::rewriting
