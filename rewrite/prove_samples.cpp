#include <algorithm>
#include <utility>

#include "prover.h"
#include "regroup.h"

namespace warpfuse::rewriting {

namespace {

namespace jit = torch::jit;

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

}  // namespace

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

bool Prover::find(OperandKind kind, jit::Value* use, std::optional<int64_t> rank, Operand& operand,
                  const std::function<bool(const Operand&, Equalities&)>& fits) {
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
    if (image.first_pixel != first || height * width != image.pixels) {
      return stop("the levels are not the value's pixels in order");
    }
    deform_.levels.emplace_back(height, width);
    first += height * width;
  }
  return true;
}

}  // namespace warpfuse::rewriting
