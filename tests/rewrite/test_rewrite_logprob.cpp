// log_softmax with a gather or a loss behind it, cross_entropy_loss, and softmax behind a linear
// layer: what the rewrite proves of them, and what it leaves.

#include <ATen/core/Reduction.h>

#include <algorithm>

#include "rewrite/rewritten.h"
#include "support/catch.h"

namespace {

namespace jit = torch::jit;

const char* const kLogprob = "warpfuse::fused_logprob";
const char* const kLogSoftmax = "warpfuse::log_softmax";
const char* const kLinear = "warpfuse::linear_dropout_softmax";
constexpr int64_t kFeatures = 8, kColumns = 11, kIgnored = -100;

// Code that makes w from x [B, T, 8], targets t [B, T] and flat targets f [N]; logits are z
// [B, T, 11] and y [N, 11].
jit::Module loss_model(const std::string& code) {
  jit::Module module("Model");
  at::manual_seed(3);
  module.register_attribute("training", c10::BoolType::get(), false);
  module.register_buffer("weight", at::randn({kColumns, kFeatures}));
  module.register_buffer("classes", at::rand({kColumns}));
  std::string source =
      "def forward(self, x: Tensor, t: Tensor, f: Tensor):\n"
      "  z = torch.matmul(x, self.weight.t())\n  y = z.reshape([-1, 11])\n";
  module.define(source.append(code).append("  return w\n"));
  return module;
}

warpfuse::RewriteOptions loss_options() {
  return {.methods = {},
          .arguments = {{"forward",
                         {{{"B", "T", "8"}},
                          {.sizes = {"B", "T"}, .dtype = at::kLong},
                          {.sizes = {"N"}, .dtype = at::kLong}}}}};
}

std::vector<c10::IValue> loss_inputs(int64_t batch, int64_t length, int64_t target) {
  at::manual_seed(4);
  const at::Tensor targets = at::randint(kColumns, {batch, length}, at::kLong);
  targets.select(1, 0).fill_(target);
  return {at::randn({batch, length, kFeatures}), targets, targets.flatten()};
}

struct ExpectedLoss {
  const char* lines;
  const char* operator_after;
  const char* note;  // a part of it
};

void check_loss(const ExpectedLoss& expected) {
  INFO(expected.lines);
  Rewritten model(loss_model(expected.lines), loss_options());
  REQUIRE(model.report.softmaxes.size() == 1);
  INFO(model.only().note);
  CHECK(model.only().operator_after == expected.operator_after);
  CHECK(model.only().note.find(expected.note) != std::string::npos);
  Same same{.equal_nan = true};
  const auto result = result_of(model.original, loss_inputs(2, 5, 1));
  if (result && result->scalar_type() == at::kHalf) {
    same.relative = same.absolute = 4e-3;
  }
  // A valid target, the ignored one, and one beyond the columns; a batch that ignores all of it.
  for (const auto& [batch, length, target] : {std::tuple{2, 5, int64_t{1}},
                                              {3, 2, kIgnored},
                                              {2, 1, kIgnored},
                                              {2, 3, kColumns},
                                              {2, 3, int64_t{-1}}}) {
    INFO(batch << " " << length << " " << target);
    check_same(model, [=] { return loss_inputs(batch, length, target); }, same);
  }
  CHECK(warpfuse::rewrite(model.module, loss_options()).routed() == 0);
}

}  // namespace

TEST_CASE("the log-probability of a target per row becomes one operator", "[rewrite]") {
  const ExpectedLoss cases[] = {
      {"  w = z.log_softmax(-1).gather(2, t.unsqueeze(-1)).squeeze(-1)\n", kLogprob, ""},
      {"  w = z.log_softmax(2).gather(-1, t.unsqueeze(2))\n", kLogprob, ""},
      // The usual shift by one.
      {"  w = z[:, :-1].log_softmax(-1).gather(2, t[:, 1:].unsqueeze(-1))\n", kLogprob, ""},
      {"  w = z.to(5).log_softmax(-1).gather(2, t.unsqueeze(-1))\n", kLogprob, ""},
      {"  w = z.to(5).log_softmax(-1, dtype=6).gather(2, t.unsqueeze(-1))\n", kLogSoftmax, "dtype"},
      {"  w = torch.cross_entropy_loss(y, t.view(-1))\n", kLogprob, ""},
      {"  w = torch.cross_entropy_loss(y, t.view(-1), None, 0)\n", kLogprob, ""},
      {"  w = torch.cross_entropy_loss(y, t.view(-1), None, 2)\n", kLogprob, ""},
      {"  w = torch.cross_entropy_loss(y.to(5), t.view(-1), None, 1, -1)\n", kLogprob, ""},
      {"  w = torch.nll_loss_nd(y.log_softmax(-1), t.view(-1))\n", kLogprob, ""},
  };
  std::ranges::for_each(cases, check_loss);
}

TEST_CASE("a log_softmax whose gather or loss is not proved stays one", "[rewrite]") {
  const ExpectedLoss cases[] = {
      {"  l = z.log_softmax(-1)\n  w = l.gather(2, t.unsqueeze(-1)) + l.sum()\n", kLogSoftmax, ""},
      {"  w = z.log_softmax(1).gather(1, t.unsqueeze(-1))\n", kLogSoftmax, ""},
      {"  w = z.log_softmax(-1).gather(1, t.unsqueeze(-1))\n", kLogSoftmax, "last dimension"},
      {"  i = torch.stack([t, t], 2)\n  w = z.log_softmax(-1).gather(2, i)\n", kLogSoftmax,
       "one column"},
      {"  w = z.log_softmax(-1).gather(2, t[:1].unsqueeze(-1))\n", kLogSoftmax, "one column"},
      {"  w = z.log_softmax(-1).gather(2, f.unsqueeze(-1).unsqueeze(-1))\n", kLogSoftmax,
       "one column"},
      {"  l = z.log_softmax(-1)\n  l.add_(1.0)\n  w = l.gather(2, t.unsqueeze(-1))\n", kLogSoftmax,
       ""},
      {"  l = z.log_softmax(-1)\n  z.add_(1.0)\n  w = l.gather(2, t.unsqueeze(-1)) + z.sum()\n",
       kLogSoftmax, "in place"},
      {"  l = y.log_softmax(-1)\n  w = y.sum()\n  for i in range(2):\n"
       "    w = w + l.gather(1, f.unsqueeze(-1)).sum()\n",
       kLogSoftmax, ""},
      {"  w = torch.cross_entropy_loss(y, t.view(-1), self.classes)\n", "", "class weights"},
      {"  w = torch.cross_entropy_loss(y, t.view(-1), None, 1, -100, 0.1)\n", "", "smoothed"},
      {"  w = torch.cross_entropy_loss(y, t.view(-1).to(6))\n", "", "int64"},
      {"  w = torch.cross_entropy_loss(z.transpose(1, 2), t)\n", "", "not proved"},
  };
  std::ranges::for_each(cases, check_loss);
}

TEST_CASE("the reduction of a loss may be an attribute", "[rewrite]") {
  jit::Module module("Model");
  module.register_attribute("training", c10::BoolType::get(), false);
  module.register_attribute("reduction", c10::IntType::get(), at::Reduction::Sum);
  module.define(
      "def forward(self, x, t):\n"
      "  return torch.cross_entropy_loss(x, t, None, self.reduction)\n");
  Rewritten model(module, {.arguments = {{"forward",
                                          {{.sizes = {"N", "V"}, .dtype = at::kFloat},
                                           {.sizes = {"N"}, .dtype = at::kLong}}}}});
  CHECK(model.only().operator_after == kLogprob);
  at::manual_seed(6);
  const at::Tensor logits = at::randn({4, kColumns});
  const at::Tensor targets = at::randint(kColumns, {4}, at::kLong);
  check_same(model, [&] { return std::vector<c10::IValue>{logits, targets}; });
}

TEST_CASE("a routed softmax is written to before a second one reads it", "[rewrite]") {
  Rewritten model(loss_model("  a = x.softmax(-1)\n  l = torch.linear(a, self.weight)\n"
                             "  a.add_(1.0)\n  w = l.softmax(-1) + a.sum()\n"),
                  loss_options());
  CHECK(model.report.softmaxes.at(1).operator_after == "warpfuse::softmax");
  CHECK(model.report.softmaxes.at(1).note == "written to in place");
  check_same(model, [] { return loss_inputs(2, 5, 1); });
}

TEST_CASE("cross_entropy_loss with class probabilities stays", "[rewrite]") {
  const Rewritten model(loss_model("  w = torch.cross_entropy_loss(y, y.softmax(-1))\n"),
                        loss_options());
  CHECK(model.report.softmaxes.at(1).operator_after.empty());
}

TEST_CASE("a linear layer before a softmax is taken where it has no other use", "[rewrite]") {
  const ExpectedLoss cases[] = {
      {"  w = torch.linear(x, self.weight).softmax(-1)\n", kLinear, ""},
      {"  w = torch.dropout(torch.linear(x, self.weight, self.classes), 0.3, False).softmax(-1)\n",
       kLinear, ""},
      {"  l = torch.linear(x, self.weight)\n  w = l.softmax(-1) + l\n", "warpfuse::softmax", ""},
      {"  w = torch.linear(x, self.weight).softmax(1)\n", "warpfuse::softmax", "last dimension"},
      {"  l = torch.linear(x, self.weight)\n  x.add_(1.0)\n  w = l.softmax(-1)\n",
       "warpfuse::softmax", "in place"},
  };
  std::ranges::for_each(cases, check_loss);
  const Rewritten model(
      loss_model("  w = torch.dropout(torch.linear(x, self.weight), 0.3, True).softmax(-1)\n"),
      loss_options());
  CHECK(model.only().operator_after == "warpfuse::softmax");
}
