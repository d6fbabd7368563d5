#include "broadcast.h"
#include "rules.h"

namespace warpfuse::rewriting {
namespace {

namespace jit = torch::jit;

Fact embedding(Facts& facts, jit::Node* node) {
  Fact fact{.dtype = facts.of(node->input(0)).dtype, .sizes = std::nullopt, .element = nullptr};
  const Fact& indices = facts.of(node->input(1));
  if (indices.sizes) {
    fact.sizes = *indices.sizes;
    fact.sizes->push_back(facts.size(node->input(0), 1));
  }
  return fact;
}

// [.., n, k] x [.., k, m]
Fact matmul(Facts& facts, jit::Node* node) {
  const Fact &a = facts.of(node->input(0)), &b = facts.of(node->input(1));
  Fact fact{.dtype = a.dtype ? a.dtype : b.dtype, .sizes = std::nullopt, .element = nullptr};
  if (a.sizes && b.sizes && a.sizes->size() >= 2 && b.sizes->size() >= 2) {
    fact.sizes = broadcast(facts, Sizes(a.sizes->begin(), a.sizes->end() - 2),
                           Sizes(b.sizes->begin(), b.sizes->end() - 2));
    fact.sizes->push_back((*a.sizes)[a.sizes->size() - 2]);
    fact.sizes->push_back(b.sizes->back());
  }
  return fact;
}

Fact addmm(Facts& facts, jit::Node* node) {
  const Fact &a = facts.of(node->input(1)), &b = facts.of(node->input(2));
  Fact fact{.dtype = a.dtype ? a.dtype : b.dtype, .sizes = std::nullopt, .element = nullptr};
  if (b.sizes && b.sizes->size() == 2) {
    fact.sizes =
        Sizes{a.sizes && a.sizes->size() == 2 ? (*a.sizes)[0] : facts.new_unknown(), (*b.sizes)[1]};
  }
  return fact;
}

// [.., k] and weight [n, k]
Fact linear(Facts& facts, jit::Node* node) {
  const Fact &x = facts.of(node->input(0)), &weight = facts.of(node->input(1));
  Fact fact = unknown_as(weight.dtype ? weight : x);
  // A weight [k] would take the last dimension away.
  if (x.sizes && !x.sizes->empty() && weight.sizes && weight.sizes->size() == 2) {
    fact.sizes = x.sizes;
    fact.sizes->back() = weight.sizes->front();
  }
  return fact;
}

// How a window moves along one dimension of an image.
struct Window {
  int64_t size, stride, padding, dilation;
  bool rounds_up;
};

Integer moved(Facts& facts, const Integer& size, const Window& window) {
  const std::optional<int64_t> length = size.known();
  if (!length || window.stride < 1) {
    return facts.new_unknown();
  }
  const int64_t room = *length + 2 * window.padding - window.dilation * (window.size - 1) - 1;
  int64_t steps = (room + (window.rounds_up ? window.stride - 1 : 0)) / window.stride;
  // A window that rounding up adds starts inside of the image or its padding on the left.
  if (window.rounds_up && steps * window.stride >= *length + window.padding) {
    --steps;
  }
  return room < 0 ? facts.new_unknown() : Integer{0, steps + 1};
}

// The elements of an argument that is a list of numbers, one per dimension or one for all.
std::optional<std::vector<int64_t>> numbers(Facts& facts, jit::Node* node, const char* name,
                                            size_t count) {
  const std::optional<std::vector<Integer>> list = facts.integers(Facts::argument(node, name));
  if (!list || list->empty() || (list->size() != 1 && list->size() != count)) {
    return std::nullopt;
  }
  std::vector<int64_t> result;
  for (size_t i = 0; i < count; ++i) {
    const Integer& each = (*list)[list->size() == 1 ? 0 : i];
    if (!each.known()) {
      return std::nullopt;
    }
    result.push_back(*each.known());
  }
  return result;
}

// [n, c, ..] and weight [m, c / groups, ..]
Fact convolution(Facts& facts, jit::Node* node) {
  Fact fact{.dtype = facts.of(node->input(1)).dtype, .sizes = std::nullopt, .element = nullptr};
  const Fact &x = facts.of(node->input(0)), &weight = facts.of(node->input(1));
  if (!weight.sizes || weight.sizes->size() < 2) {
    return fact;
  }
  const size_t rank = weight.sizes->size();
  const bool is_batch = x.sizes && x.sizes->size() == rank;
  // conv2d takes an image without a batch too.
  if (!is_batch && (x.sizes || node->kind() == jit::aten::conv2d)) {
    return fact;
  }
  const std::optional<c10::IValue> transposed = facts.constant_argument(node, "transposed");
  const bool is_plain = Facts::argument(node, "transposed") == nullptr ||
                        (transposed && transposed->isBool() && !transposed->toBool());
  fact.sizes = Sizes{is_batch ? x.sizes->front() : facts.new_unknown(),
                     is_plain ? weight.sizes->front() : facts.new_unknown()};
  const auto strides = numbers(facts, node, "stride", rank - 2);
  const auto paddings = numbers(facts, node, "padding", rank - 2);
  const auto dilations = numbers(facts, node, "dilation", rank - 2);
  for (size_t i = 2; i < rank; ++i) {
    const std::optional<int64_t> size = (*weight.sizes)[i].known();
    const bool is_known = is_batch && is_plain && size && strides && paddings && dilations;
    fact.sizes->push_back(
        is_known ? moved(facts, (*x.sizes)[i],
                         {*size, (*strides)[i - 2], (*paddings)[i - 2], (*dilations)[i - 2], false})
                 : facts.new_unknown());
  }
  return fact;
}

// The largest, or the mean, of a window: [.., h, w]
Fact pooling(Facts& facts, jit::Node* node) {
  const Fact& x = facts.of(node->input(0));
  Fact fact{.dtype = x.dtype, .sizes = x.sizes, .element = nullptr};
  if (!x.sizes || x.sizes->size() < 3) {
    fact.sizes.reset();
    return fact;
  }
  const auto sizes = numbers(facts, node, "kernel_size", 2);
  const auto given = facts.integers(Facts::argument(node, "stride"));
  const auto strides = given && given->empty() ? sizes : numbers(facts, node, "stride", 2);
  const auto paddings = numbers(facts, node, "padding", 2);
  const bool has_dilation = Facts::argument(node, "dilation") != nullptr;
  const auto dilations = has_dilation ? numbers(facts, node, "dilation", 2)
                                      : std::optional(std::vector<int64_t>{1, 1});
  const std::optional<c10::IValue> rounds_up = facts.constant_argument(node, "ceil_mode");
  const size_t first = x.sizes->size() - 2;
  for (const size_t i : {0, 1}) {
    const bool is_known = sizes && strides && paddings && dilations && rounds_up;
    (*fact.sizes)[first + i] = is_known ? moved(facts, (*x.sizes)[first + i],
                                                {(*sizes)[i], (*strides)[i], (*paddings)[i],
                                                 (*dilations)[i], rounds_up->toBool()})
                                        : facts.new_unknown();
  }
  return fact;
}

// An image [n, c, h, w] at another size, or times two numbers.
Fact upsampled(Facts& facts, jit::Node* node) {
  const Fact& x = facts.of(node->input(0));
  Fact fact{.dtype = x.dtype, .sizes = x.sizes, .element = nullptr};
  if (!x.sizes || x.sizes->size() != 4) {
    fact.sizes.reset();
    return fact;
  }
  const auto sizes = facts.integers(Facts::argument(node, "output_size"));
  const auto scales = facts.elements(Facts::argument(node, "scale_factors"));
  for (const size_t i : {0, 1}) {
    Integer& size = (*fact.sizes)[2 + i];
    const std::optional<double> scale =
        scales && scales->size() == 2 ? facts.number((*scales)[i]) : std::nullopt;
    if (sizes && sizes->size() == 2) {
      size = (*sizes)[i];
    } else if (scale && size.known()) {
      size = {0, static_cast<int64_t>(static_cast<double>(size.constant) * *scale)};
    } else {
      size = facts.new_unknown();
    }
  }
  return fact;
}

// Queries [.., n, d], keys [.., k, d] and values [.., k, m].
Fact attention(Facts& facts, jit::Node* node) {
  Fact fact{.dtype = facts.of(node->input(0)).dtype, .sizes = Sizes(), .element = nullptr};
  for (const size_t i : {0, 1, 2}) {
    const std::optional<Sizes>& sizes = facts.of(node->input(i)).sizes;
    if (!sizes || sizes->size() < 2) {
      fact.sizes.reset();
      return fact;
    }
    fact.sizes = broadcast(facts, *fact.sizes, Sizes(sizes->begin(), sizes->end() - 2));
  }
  fact.sizes->push_back(facts.size(node->input(0), -2));
  fact.sizes->push_back(facts.size(node->input(2), -1));
  return fact;
}

// Images [n, c, h, w] at places [n, y, x, 2].
Fact samples(Facts& facts, jit::Node* node) {
  const Fact &image = facts.of(node->input(0)), &grid = facts.of(node->input(1));
  Fact fact{.dtype = image.dtype, .sizes = std::nullopt, .element = nullptr};
  if (image.sizes && image.sizes->size() == 4 && grid.sizes && grid.sizes->size() == 4) {
    fact.sizes = Sizes{(*image.sizes)[0], (*image.sizes)[1], (*grid.sizes)[1], (*grid.sizes)[2]};
  }
  return fact;
}

}  // namespace

const RuleTable kLayerRules{{"aten::embedding", embedding},
                            {"aten::matmul", matmul},
                            {"aten::bmm", matmul},
                            {"aten::addmm", addmm},
                            {"aten::linear", linear},
                            {"aten::conv2d", convolution},
                            {"aten::_convolution", convolution},
                            {"aten::max_pool2d", pooling},
                            {"aten::avg_pool2d", pooling},
                            {"aten::upsample_nearest2d", upsampled},
                            {"aten::upsample_bilinear2d", upsampled},
                            {"aten::scaled_dot_product_attention", attention},
                            {"aten::grid_sampler", samples}};

}  // namespace warpfuse::rewriting
