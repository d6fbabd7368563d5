#include "bench/case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <limits>

#include "bench/benchmark.h"

namespace warpfuse::host::bench {
namespace {

std::string dtype_name(const Case& c) { return name_in(kDtypeNames, Precision{c.dtype, c.tf32}); }

// The product must fit 64 bits when it is counted in bytes too.
constexpr int64_t kMaxElements = std::numeric_limits<int64_t>::max() / 64;

}  // namespace

int64_t Shape::elements() const {
  int64_t product = 1;
  for (const int64_t size : sizes) {
    product *= size;
  }
  return product;
}

std::string Shape::text() const {
  return fmt::format("{}{}", fmt::join(sizes, "x"), dim < 0 ? "" : fmt::format("@{}", dim));
}

std::optional<int64_t> parse_integer(std::string_view text) {
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.begin(), text.end(), value);
  return error == std::errc() && stop == text.end() ? std::optional(value) : std::nullopt;
}

std::optional<Shape> parse_shape(std::string_view text) {
  Shape shape;
  const size_t at = text.find('@');
  std::string_view rest = text.substr(0, at);
  int64_t elements = 1;
  for (bool more = true; more;) {
    const size_t x = rest.find('x');
    const std::optional<int64_t> size = parse_integer(rest.substr(0, x));
    if (!size || *size < 1 || *size > kMaxElements / elements) {
      return std::nullopt;
    }
    elements *= *size;
    shape.sizes.push_back(*size);
    more = x != std::string_view::npos;
    rest.remove_prefix(more ? x + 1 : rest.size());
  }
  if (at != std::string_view::npos) {
    const auto rank = static_cast<int64_t>(shape.sizes.size());
    const std::optional<int64_t> dim = parse_integer(text.substr(at + 1));
    if (!dim || *dim < -rank || *dim >= rank) {
      return std::nullopt;
    }
    const int64_t wrapped = *dim < 0 ? *dim + rank : *dim;
    shape.dim = wrapped == rank - 1 ? -1 : wrapped;
  }
  return shape;
}

Json key_of(const Case& c) {
  return {{"operator", c.op->name}, {"direction", name_in(kDirectionNames, c.direction)},
          {"shape", c.shape.sizes}, {"dim", c.shape.dim},
          {"dtype", dtype_name(c)}, {"mask", name_in(kMaskNames, c.mask)}};
}

std::string text_of(const Case& c) {
  return fmt::format("{} {} {} {} {}", c.op->name, name_in(kDirectionNames, c.direction),
                     c.shape.text(), dtype_name(c), name_in(kMaskNames, c.mask));
}

}  // namespace warpfuse::host::bench
