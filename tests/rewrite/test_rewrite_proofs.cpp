// What is proved of a tensor, its sizes, dtype and elements, is what the graph gives.

#include <map>

#include "rewrite/proved.h"
#include "rewrite/rewritten.h"
#include "support/catch.h"

namespace {

using warpfuse::rewriting::ExpressionPtr;
using Kind = warpfuse::rewriting::Expression::Kind;

/// The element at these indices; nothing where an element of another tensor decides.
// NOLINTNEXTLINE(misc-no-recursion): it follows the tree.
std::optional<double> evaluated(const ExpressionPtr& expression, const std::vector<int64_t>& at) {
  if (!expression) {
    return std::nullopt;
  }
  const auto a = evaluated(expression->a, at), b = evaluated(expression->b, at);
  const auto& [dim, offset] = expression->coordinate;
  switch (expression->kind) {
    case Kind::constant:
      return expression->number;
    case Kind::coordinate:
      return static_cast<double>(at.at(dim) + offset);
    case Kind::element:
      return std::nullopt;
    case Kind::negation:
      return a ? std::optional<double>(*a == 0) : std::nullopt;
    case Kind::select: {
      const auto condition = evaluated(expression->condition, at);
      return condition ? (*condition != 0 ? a : b) : std::nullopt;
    }
    default:
      break;
  }
  if (!a || !b) {
    return std::nullopt;
  }
  return expression->kind == Kind::less         ? *a < *b
         : expression->kind == Kind::less_equal ? *a <= *b
         : expression->kind == Kind::equal      ? *a == *b
                                                : *a != 0 && *b != 0;
}

void check_elements(const ExpressionPtr& element, const at::Tensor& given) {
  const at::Tensor flat = given.to(at::kDouble).flatten();
  for (int64_t i = 0; i < flat.numel(); ++i) {
    std::vector<int64_t> at(given.dim());
    for (int64_t dim = given.dim() - 1, rest = i; dim >= 0; rest /= given.size(dim), --dim) {
      at[dim] = rest % given.size(dim);
    }
    const std::optional<double> proved = evaluated(element, at);
    if (proved && *proved != flat[i].item<double>()) {
      FAIL_CHECK("the element " << i << " is " << flat[i].item<double>() << ", not " << *proved);
      return;
    }
  }
}

/// What is proved of the result of lines that may use x and w, with sizes that are numbers or
/// names.
void check_proof(const std::string& lines, const at::Tensor& x, const at::Tensor& w, bool has_names,
                 bool has_dtypes) {
  INFO(lines << (has_names ? " with names" : "") << (has_dtypes ? " and dtypes" : ""));
  torch::jit::Module module = module_of_source("x: Tensor, w: Tensor", lines);
  std::vector<warpfuse::RewriteArgument> arguments;
  for (const at::Tensor& each : {x, w}) {
    arguments.emplace_back();
    for (const int64_t size : each.sizes()) {
      arguments.back().sizes.push_back((has_names ? "N" : "") + std::to_string(size));
    }
    if (has_dtypes) {
      arguments.back().dtype = each.scalar_type();
    }
  }
  const Proved proved(module, arguments);
  const warpfuse::rewriting::Fact& fact = proved.result();
  std::map<int64_t, int64_t> unknowns;
  for (const auto& [value, tensor] :
       {std::pair{proved.graph->inputs()[1], x}, std::pair{proved.graph->inputs()[2], w}}) {
    const auto& sizes = proved.facts.of(value).sizes;
    for (int64_t dim = 0; sizes && dim < tensor.dim(); ++dim) {
      unknowns[(*sizes)[dim].unknown] = has_names ? tensor.size(dim) : 0;
    }
  }
  const at::Tensor given = result_of(module, {x.clone(), w.clone()}).value();
  CHECK(fact.dtype.value_or(given.scalar_type()) == given.scalar_type());
  if (fact.sizes) {
    REQUIRE(static_cast<int64_t>(fact.sizes->size()) == given.dim());
    for (int64_t dim = 0; dim < given.dim(); ++dim) {
      const auto& size = (*fact.sizes)[dim];
      const int64_t rest = given.size(dim) - size.constant;
      CHECK((size.unknown == 0 ? 0 : unknowns.try_emplace(size.unknown, rest).first->second) ==
            rest);
    }
  }
  check_elements(fact.element, given);
}

}  // namespace

TEST_CASE("what is proved of a tensor is so", "[rewrite]") {
  struct Case {
    const char* lines;
    std::vector<int64_t> x = {1}, w = {1};  // sizes
  };
  const Case cases[] = {
      // Indices: None, masks, and those that count from the end.
      {"  return x[:, torch.ones_like(w, dtype=4)]", {2, 3, 4}, {5}},
      {"  return x[x > 0]", {2, 3}},
      {"  return x[(w < 0).to(0)]", {2, 3}, {2}},
      {"  return torch.arange(5)[torch.arange(3) - 1]"},
      {"  return torch.squeeze(x)[torch.arange(2)]", {2, 3}},
      // Lists that are changed.
      {"  l = [3, 2]\n  l[0] = 1\n  l[1] = 6\n  return x.view(l)", {2, 3}},
      {"  l = [x]\n  l.append(w)\n  return torch.cat(l, 0)", {2, 3}, {4, 3}},
      {"  a, b, c, d = torch.chunk(x, 2, 0) + torch.chunk(w, 2, 0)\n  return d", {2, 3}, {4, 3}},
      {"  a, b, c, d = torch.chunk(x, 2, 0) + torch.chunk(w, 2, 0)\n  return a", {2, 3}, {4, 3}},
      {"  l = torch.split(x, [1, 2], 0)\n  l.reverse()\n  a, b = l\n  return a", {3, 2}},
      {"  l = torch.split(x, 2, 0)\n  l.append(w)\n  a, b = l\n  return b", {2, 3}, {4}},
      // Sizes that a write changes.
      {"  y = x * 1.0\n  y.unsqueeze_(0)\n  return y * 2.0", {2, 3}},
      {"  x.squeeze_(0)\n  return x", {1, 3}},
      {"  y = x * 1.0\n  n = y.size(0)\n  y.t_()\n  return x.view([y.size(0), n])", {2, 3}},
      {"  y = torch.zeros([0])\n  torch.add(w, w, out=y)\n  return y", {1}, {2, 3}},
      {"  n = torch.sum(w).to(4)\n  a = int(n)\n  n.add_(1)\n  return torch.zeros([a, int(n)])"},
      // Parts, of which the last is smaller.
      {"  a, b = torch.chunk(x, 2, 1)\n  return b", {2, 3}},
      {"  a, b = torch.chunk(x, 2, 1)\n  return torch.ones([b.size(1), a.size(1)])", {2, 3}},
      {"  a, b = torch.split(x, 2, 1)\n  return b", {2, 3}},
      {"  a, b = torch.split(x, x.size(0), 1)\n  return b", {2, 3}},
      {"  a, = torch.split(x, 5, 1)\n  return a", {2, 3}},
      {"  a, b = torch.split(x, [1, 2], 1)\n  return b", {2, 3}},
      // Slices.
      {"  return x[:, :-1]", {2, 3}},
      {"  return x[:1, :w.size(0)]", {2, 3}, {2}},
      {"  return x[:, :w.size(0)]", {2, 1}, {5}},
      {"  return torch.ones([2, 1])[:, :w.size(0)]", {1}, {5}},
      {"  return torch.cat([x[5:], w])", {2}, {4}},
      // Ranks.
      {"  return torch.linear(x, w)", {2, 3}, {3}},
      {"  return torch.conv2d(x, w)", {3, 5, 6}, {4, 3, 2, 2}},
      {"  return torch.conv2d(torch.squeeze(x), w)", {3, 5, 6}, {4, 3, 2, 2}},
      {"  return torch._convolution(x, w, None, [1, 1], [0, 0], [1, 1], True, [0, 0], 1, False, "
       "False, False, False)",
       {1, 4, 5, 6},
       {4, 3, 2, 2}},
      {"  return torch.cat([torch.zeros([0]), x], -1)", {2, 3}},
      {"  return torch.clamp(x, min=w)", {3}, {2, 3}},
      {"  return torch.pow(x, w)", {3}, {2, 3}},
      // Dtypes.
      {"  return torch.softmax(x, -1, dtype=7)", {2, 3}},
      {"  return torch.sum(x, [0], dtype=7)", {2, 3}},
      {"  return torch.where(x > 0, w, torch.zeros([3], dtype=15))", {3}, {3}},
      {"  return torch.where(x > 0, 1, 2)", {3}},
      {"  return torch.arange(2.5)"},
      {"  return torch.arange(3) / torch.arange(3)"},
      {"  return (torch.arange(3) + 1) * torch.ones([3], dtype=0)"},
      // Numbers in a dtype.
      {"  return torch.full([2], 2.7, dtype=4)"},
      {"  return torch.full([2], 7)"},
      {"  return torch.full([2], 0.1, dtype=15) == 0.1"},
      {"  return torch.full([2], 0.1, dtype=6) == 0.1"},
      {"  return torch.ones([2], dtype=11) + torch.ones([2], dtype=11)"},
      {"  return torch.where(torch.arange(3) > 1, torch.zeros([3], dtype=5), -100000.0)"},
      {"  return torch.full([2], 0.1).type_as(torch.cumsum(x.to(15), 0))"},
      {"  return torch.feature_dropout(torch.ones([1, 2, 3]), 0.5, True)"},
      // Coordinates that a dtype does not hold.
      {"  return torch.arange(300, dtype=15)"},
      {"  return torch.arange(250, dtype=0) + 10"},
      {"  return torch.arange(300) + torch.zeros([300], dtype=15)"},
      {"  return (torch.arange(300) + 1).type_as(x.to(15))"},
      {"  return (torch.arange(300) + 1).type_as(torch.cumsum(x.to(15), 0))"},
      {"  return torch.arange(3, dtype=6) + 100000001.0"},
      {"  return torch.arange(4, dtype=6) - 2"},
      {"  return (torch.arange(4).unsqueeze(0) <= torch.arange(3).unsqueeze(1) + 1).logical_not()"},
      {"  return torch.where(torch.arange(4) > 1, -0.1, 1.0).to(15)"},
      // A comparison with NaN, which is false in both directions.
      {"  return (torch.arange(2) < torch.full([2], float('nan'), dtype=6)).logical_not()"},
      {"  y = torch.where(torch.arange(2) > 0, float('nan'), 2.0)\n"
       "  return (y < 1.0).logical_not()"},
  };
  for (const Case& each : cases) {
    at::manual_seed(2);
    const at::Tensor x = at::randn(each.x), w = at::rand(each.w);
    for (const bool has_names : {false, true}) {
      for (const bool has_dtypes : {false, true}) {
        check_proof(each.lines, x, w, has_names, has_dtypes);
      }
    }
  }
}

TEST_CASE("a dimension that a tensor lacks proves nothing", "[rewrite]") {
  for (const char* const view :
       {"x.transpose(1, 2)", "x.permute([0, 2])", "x.unsqueeze(4)", "x.select(2, 0)", "x[0][0][0]",
        "torch.slice(x, 2)", "x.chunk(2, 3)[0]", "x.unbind(2)[0]", "x.sum([2])",
        "x.flatten(0, 2)"}) {
    INFO(view);
    torch::jit::Module module =
        module_of_source("x: Tensor", "  return torch.softmax(" + std::string(view) + ", -1)");
    const Rewritten model(module, {.arguments = {{"forward", {{.sizes = {"2", "3"}}}}}});
    CHECK(model.only().operator_after == "warpfuse::softmax");
  }
}
