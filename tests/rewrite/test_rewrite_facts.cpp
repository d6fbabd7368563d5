// Sizes behind layers and windows: what is proved of them is what the graph gives.

#include "rewrite/proved.h"
#include "rewrite/rewritten.h"
#include "support/catch.h"

namespace {

/// The sizes of what `expression` makes of x and w, with -1 for those that are not known.
std::vector<int64_t> proved_sizes(const torch::jit::Module& module,
                                  const std::vector<std::vector<std::string>>& sizes) {
  std::vector<warpfuse::RewriteArgument> arguments;
  for (const std::vector<std::string>& each : sizes) {
    arguments.push_back({.sizes = each, .dtype = at::kFloat});
  }
  const Proved proved(module, arguments);
  std::vector<int64_t> result;
  for (const auto& size : proved.result().sizes.value()) {
    result.push_back(size.known().value_or(-1));
  }
  return result;
}

void check_sizes(const std::string& expression, const std::vector<int64_t>& x,
                 const std::vector<int64_t>& w = {1}) {
  const auto text = [](const std::vector<int64_t>& sizes) {
    std::vector<std::string> texts;
    for (const int64_t size : sizes) {
      texts.push_back(std::to_string(size));
    }
    return texts;
  };
  torch::jit::Module module =
      module_of_source("x: Tensor, w: Tensor", "  return " + expression + "\n");
  INFO(expression << " of " << at::IntArrayRef(x) << ", " << at::IntArrayRef(w));
  const auto given = result_of(module, {at::ones(x), at::ones(w)});
  REQUIRE(given.has_value());
  CHECK(proved_sizes(module, {text(x), text(w)}) == given->sizes().vec());
}

std::string of_window(const std::string& call, int64_t size, int64_t stride, int64_t padding,
                      const std::string& rest) {
  return c10::str(call, ", [", size, ", 2], [", stride, ", 1], [", padding, ", 0]", rest, ")");
}

}  // namespace

TEST_CASE("sizes behind windows that move over an image", "[rewrite]") {
  for (const int64_t length : {5, 6, 7, 8}) {
    for (const int64_t size : {2, 3}) {
      for (const int64_t stride : {1, 2, 3, 4}) {
        for (const int64_t padding : {0, 1}) {
          for (const std::string ceil : {"False", "True"}) {
            check_sizes(of_window("torch.avg_pool2d(x", size, stride, padding, ", " + ceil),
                        {2, 3, length, 4});
            for (const std::string dilation : {"1", "[2, 1]"}) {
              check_sizes(of_window("torch.max_pool2d(x", size, stride, padding,
                                    ", " + dilation + ", " + ceil),
                          {2, 3, length, 4});
            }
          }
          for (const int dilation : {1, 2}) {
            check_sizes(c10::str("torch.conv2d(x, w, None, [", stride, ", 1], [", padding, ", 2], ",
                                 dilation, ", 3)"),
                        {2, 3, length, 9}, {6, 1, size, 2});
          }
        }
      }
    }
  }
  check_sizes("torch.max_pool2d(x, 2)", {3, 7, 9});  // the stride is the window
}

TEST_CASE("sizes behind other layers", "[rewrite]") {
  check_sizes("torch.linear(x, w)", {2, 3, 5}, {7, 5});
  check_sizes("torch.linear(x, w)", {5}, {7, 5});
  check_sizes("torch.matmul(x, w)", {2, 1, 3, 5}, {4, 5, 6});
  check_sizes("torch.bmm(x, w)", {2, 3, 5}, {2, 5, 6});
  check_sizes("torch.addmm(w, x, x.t())", {3, 5}, {3});
  check_sizes("torch.embedding(w, x.to(4))", {2, 3}, {7, 5});
  check_sizes("torch.upsample_nearest2d(x, [7, 9])", {2, 3, 4, 5});
  check_sizes("torch.upsample_nearest2d(x, None, [2.5, 1.0])", {2, 3, 5, 4});
  check_sizes("torch.scaled_dot_product_attention(x, x, w)", {2, 1, 5, 8}, {1, 3, 5, 6});
  check_sizes("torch.grid_sampler(x, w, 0, 0, False)", {2, 3, 4, 5}, {2, 7, 9, 2});
}

TEST_CASE("sizes behind a layer whose input's are not known", "[rewrite]") {
  const auto sizes = [](const std::string& expression,
                        const std::vector<std::vector<std::string>>& given) {
    return proved_sizes(module_of_source("x: Tensor, w: Tensor", "  return " + expression + "\n"),
                        given);
  };
  using Sizes = std::vector<int64_t>;
  CHECK(sizes("torch.max_pool2d(x, 2)", {{"B", "3", "H", "8"}}) == Sizes{-1, 3, -1, 4});
  CHECK(sizes("torch.conv2d(x, w)", {{"2", "3", "H", "8"}, {"4", "3", "3", "3"}}) ==
        Sizes{2, 4, -1, 6});
  CHECK(sizes("torch.linear(x, w)", {{"B", "T", "5"}, {"7", "5"}}) == Sizes{-1, -1, 7});
}
