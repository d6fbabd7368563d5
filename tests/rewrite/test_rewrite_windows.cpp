// Scores that are viewed as [B, W, H, N, N] for a mask of each window, and viewed back, as in Swin
// transformers before 5 of that library.

#include <algorithm>

#include "rewrite/rewritten.h"
#include "support/catch.h"

namespace {

const char* const kFused = "warpfuse::scaled_masked_softmax";

// Scores s [B * 2, 3, 4, 4] of two windows.
const std::string kSplit =
    "  x = s * 0.5\n  b = s.size(0) // 2\n  f = addend.to(6)\n"
    "  m = self.shifted.unsqueeze(1).unsqueeze(0)\n";

Rewritten windowed(const std::string& code) {
  warpfuse::RewriteOptions options = attention_options();
  for (warpfuse::RewriteArgument& argument : options.arguments["forward"]) {
    for (std::string& size : argument.sizes) {
      size = size == "T" || size == "S" ? "4" : size;
    }
  }
  return Rewritten(attention_model(kSplit + code), options);
}

struct ExpectedWindows {
  const char* lines;
  const char* mask;
  const char* form;
  const char* note;  // a part of it
};

void check_windows(const ExpectedWindows& expected) {
  INFO(expected.lines);
  Rewritten model = windowed(expected.lines);
  INFO(model.only().note);
  CHECK(model.only().mask == expected.mask);
  CHECK(model.only().form == expected.form);
  CHECK(model.only().note.find(expected.note) != std::string::npos);
  for (const int64_t images : {2, 4, 8, 3, 1}) {
    INFO(images);
    check_same(model, [=] { return attention_inputs(images, 4, 4); }, {.equal_nan = true});
    CHECK(result_of(model.module, attention_inputs(images, 4, 4)).has_value() == (images % 2 == 0));
  }
}

}  // namespace

TEST_CASE("masks of windows become one call", "[rewrite]") {
  const ExpectedWindows cases[] = {
      {"  y = x.view([b, 2, 3, 4, 4]) + m\n  w = y.view([-1, 3, 4, 4]).softmax(-1)\n", "additive",
       "mul, view, add, view, softmax", ""},
      {"  y = (x + self.bias).view([b, 2, 3, 4, 4]) + m\n  w = y.view([-1, 3, 4, 4]).softmax(-1)\n",
       "additive", "mul, add, view, add, view, softmax", ""},
      {"  y = m + (x + self.bias).reshape([-1, 2, 3, 4, 4])\n"
       "  w = y.reshape([s.size(0), 3, 4, 4]).softmax(3)\n",
       "additive", "mul, add, view, add, view, softmax", ""},
      {"  y = x.view([b, 2, 3, 4, 4]).masked_fill(m < 0, -2.0)\n"
       "  w = y.view([-1, 3, 4, 4]).softmax(-1)\n",
       "boolean, filled", "mul, view, masked_fill, view, softmax", ""},
      {"  y = (x + self.bias).view([b, 2, 3, 4, 4]).masked_fill(keys > queries, float('-inf'))\n"
       "  w = y.view([-1, 3, 4, 4]).softmax(-1)\n",
       "causal + additive", "mul, add, view, masked_fill, view, softmax", ""},
  };
  for (const ExpectedWindows& expected : cases) {
    check_windows(expected);
    CHECK(windowed(expected.lines).only().operator_after == kFused);
  }
}

TEST_CASE("what is not proved to be a mask of windows stays", "[rewrite]") {
  const ExpectedWindows cases[] = {
      // Heads and windows the other way round.
      {"  y = x.view([b, 3, 2, 4, 4]) + m.transpose(1, 2)\n"
       "  w = y.view([-1, 3, 4, 4]).softmax(-1)\n",
       "none", "softmax", "not proved to be of windows"},
      {"  y = x.view([b, 2, 3, 4, 4]) + m\n  w = y.view([-1, 6, 2, 4]).softmax(-1)\n", "none",
       "softmax", "not proved to be of windows"},
      // Two images are not the same.
      {"  y = (x + f).view([b, 2, 3, 4, 4]) + m\n  w = y.view([-1, 3, 4, 4]).softmax(-1)\n", "none",
       "softmax", "rounded otherwise"},
      {"  y = x.view([b, 2, 3, 4, 4]) + torch.ones([b, 1, 1, 4, 4], dtype=6)\n"
       "  w = y.view([-1, 3, 4, 4]).softmax(-1)\n",
       "none", "softmax", "not alone"},
      {"  y = x.view([b, 2, 3, 4, 4]) + m\n"
       "  w = y.view([-1, 3, 4, 4]).softmax(-1) * y.view([-1, 3, 4, 4])\n",
       "none", "softmax", "another use"},
      // The scores are no product.
      {"  y = x.transpose(2, 3).reshape([b, 2, 3, 4, 4]) + m\n"
       "  w = y.view([-1, 3, 4, 4]).softmax(-1)\n",
       "none", "softmax", "not alone"},
  };
  std::ranges::for_each(cases, check_windows);
}
