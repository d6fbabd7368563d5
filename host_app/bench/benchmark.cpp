#include "bench/benchmark.h"

#include <ATen/Context.h>
#include <fmt/ranges.h>

#include <limits>

#include "bench/suites/suites.h"
#include "runtime/parse.h"

namespace warpfuse::host::bench {
namespace {

std::string dtype_name(const Case& c) { return name_in(kDtypeNames, Precision{c.dtype, c.tf32}); }

// The product must fit 64 bits when it is counted in bytes too.
constexpr int64_t kMaxElements = std::numeric_limits<int64_t>::max() / 64;

// The text before the first `letter`, which stays with the rest in `text`.
std::string_view take_up_to(std::string_view& text, char letter) {
  const std::string_view taken = text.substr(0, text.find(letter));
  text.remove_prefix(taken.size());
  return taken;
}

// Sizes such as 4x5 whose product is at most `limit`.
std::optional<std::vector<int64_t>> parse_sizes(std::string_view text, int64_t limit) {
  std::vector<int64_t> sizes;
  for (bool more = true; more;) {
    const std::optional<int64_t> size = parse_number(take_up_to(text, 'x'));
    if (!size || *size < 1 || *size > limit) {
      return std::nullopt;
    }
    limit /= *size;
    sizes.push_back(*size);
    more = !text.empty();
    text.remove_prefix(more ? 1 : 0);
  }
  return sizes;
}

constexpr uint64_t kCheckSeed = 2020;

}  // namespace

int64_t Shape::elements() const {
  int64_t product = 1;
  for (const int64_t size : sizes) {
    product *= size;
  }
  return product;
}

std::string Shape::sizes_text() const {
  std::string text = fmt::format("{}", fmt::join(sizes, "x"));
  for (const auto& [height, width] : levels) {
    text += fmt::format("/{}x{}", height, width);
  }
  return text;
}

std::string Shape::text() const {
  return sizes_text() + (dim < 0 ? std::string() : fmt::format("@{}", dim));
}

Shape shape_in(const Json& row) {
  return {.sizes = row["shape"].get<decltype(Shape::sizes)>(),
          .dim = row["dim"].get<int64_t>(),
          .levels = row.value(kLevelsField, decltype(Shape::levels)())};
}

std::optional<Shape> parse_shape(std::string_view text) {
  Shape shape;
  const size_t at = text.find('@');
  std::string_view levels = text.substr(0, at);
  const auto sizes = parse_sizes(take_up_to(levels, '/'), kMaxElements);
  if (!sizes) {
    return std::nullopt;
  }
  shape.sizes = *sizes;
  while (!levels.empty()) {
    levels.remove_prefix(1);
    const auto level = parse_sizes(take_up_to(levels, '/'), kMaxElements / shape.elements());
    if (!level || level->size() != 2 || at != std::string_view::npos) {
      return std::nullopt;
    }
    shape.levels.push_back({level->front(), level->back()});
  }
  if (at != std::string_view::npos) {
    const auto rank = static_cast<int64_t>(shape.sizes.size());
    const std::optional<int64_t> dim = parse_number(text.substr(at + 1));
    if (!dim || *dim < -rank || *dim >= rank) {
      return std::nullopt;
    }
    const int64_t wrapped = *dim < 0 ? *dim + rank : *dim;
    shape.dim = wrapped == rank - 1 ? -1 : wrapped;
  }
  return shape;
}

Json key_of(const Case& c) {
  Json key{{"operator", c.op->name}, {"direction", name_in(kDirectionNames, c.direction)},
           {"shape", c.shape.sizes}, {"dim", c.shape.dim},
           {"dtype", dtype_name(c)}, {"mask", name_in(kMaskNames, c.mask)}};
  if (!c.shape.levels.empty()) {
    key[kLevelsField] = c.shape.levels;
  }
  return key;
}

std::string text_of(const Json& key) {
  return fmt::format("{} {} {} {} {}", key["operator"].get<std::string>(),
                     key["direction"].get<std::string>(), shape_in(key).text(),
                     key["dtype"].get<std::string>(), key["mask"].get<std::string>());
}

int64_t Outputs::bytes() const {
  auto sum = static_cast<int64_t>(result.nbytes());
  for (const at::Tensor& other : others) {
    sum += static_cast<int64_t>(other.nbytes());
  }
  return sum;
}

void Outputs::spoil() const {
  const auto spoil_one = [](const at::Tensor& tensor) {
    tensor.fill_(tensor.is_floating_point() ? at::Scalar(std::numeric_limits<double>::quiet_NaN())
                                            : at::Scalar(std::numeric_limits<int64_t>::min()));
  };
  spoil_one(result);
  std::ranges::for_each(others, spoil_one);
}

std::span<const Benchmark* const> benchmarks() { return kBenchmarks; }

const Benchmark* find_benchmark(std::string_view name) {
  const auto found = std::ranges::find(kBenchmarks, name, &Benchmark::name);
  return found == kBenchmarks.end() ? nullptr : *found;
}

std::vector<std::string> operators_of(const std::vector<Case>& cases) {
  std::vector<std::string> names;
  for (const Case& c : cases) {
    for (std::string& name : c.op->operators(c)) {
      add_once(names, std::move(name));
    }
  }
  return names;
}

bool is_refusal(std::string_view message) {
  return message.find("_algorithm: algorithm: expected") != std::string_view::npos;
}

void rewind_generators() { at::manual_seed(kCheckSeed); }

}  // namespace warpfuse::host::bench
