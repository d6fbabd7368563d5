// Chains before a softmax: what the rewrite proves of them, and what it leaves.

#include <algorithm>

#include "rewrite/rewritten.h"
#include "support/catch.h"

namespace {

namespace jit = torch::jit;

const char* const kAttention = "warpfuse::scaled_masked_softmax";
const char* const kPlain = "warpfuse::softmax";

struct Expected {
  const char* lines;
  const char* operator_after;
  const char* mask;
  const char* note;  // a part of it
};

Rewritten rewritten(const std::string& lines, bool keep_nan = false) {
  return Rewritten(attention_model(lines), attention_options(keep_nan));
}

void check(const Expected& expected) {
  INFO(expected.lines);
  Rewritten model = rewritten(expected.lines);
  REQUIRE(model.report.softmaxes.size() == 1);
  const warpfuse::RewrittenSoftmax& softmax = model.only();
  CHECK(softmax.operator_after == expected.operator_after);
  CHECK(softmax.mask == expected.mask);
  INFO(softmax.note);
  CHECK(softmax.note.find(expected.note) != std::string::npos);
  for (const auto& [batch, queries, keys] : {std::tuple{2, 5, 7}, {1, 1, 1}, {3, 6, 6}}) {
    INFO(batch << " " << queries << " " << keys);
    check_same(model, [=] { return attention_inputs(batch, queries, keys); },
               {.nan_becomes_zero = softmax.note.find("become 0") != std::string::npos});
  }
  const warpfuse::RewriteReport again = warpfuse::rewrite(model.module, attention_options());
  CHECK(again.routed() == 0);
}

}  // namespace

TEST_CASE("chains that are proved become one operator", "[rewrite]") {
  const Expected cases[] = {
      {"  w = s.softmax(-1)\n", kPlain, "none", ""},
      {"  w = torch.softmax(s, 3)\n", kPlain, "none", ""},
      {"  w = torch._softmax(s, 3, False)\n", kPlain, "none", ""},
      // A mask that depends on the scores is a mask like others.
      {"  w = (s * 0.5).masked_fill(s > 0.3, -10000.0).softmax(-1)\n", kAttention,
       "boolean, filled", ""},
      {"  w = (s * 0.3).softmax(-1)\n", kAttention, "none", ""},
      {"  w = (s / 8.0).softmax(-1)\n", kAttention, "none", ""},
      {"  w = (0.3 * s).softmax(-1)\n", kAttention, "none", ""},
      {"  w = (s + addend).softmax(-1)\n", kPlain, "none", "dtype"},
      {"  w = (s * 0.5).masked_fill(visible == False, float('-inf')).softmax(-1)\n", kAttention,
       "boolean", "become 0"},
      {"  w = (s * 0.5).masked_fill(visible.logical_not(), -10000.0).softmax(-1)\n", kAttention,
       "boolean, filled", ""},
      {"  w = torch.where(visible > False, s * 0.5, -10000.0).softmax(-1)\n", kAttention,
       "boolean, filled", ""},
      {"  m = torch.where(visible, 0.0, -10000.0).to(6)\n"
       "  w = (s * 0.5 + m).softmax(-1)\n",
       kAttention, "additive", ""},
      // Causal, by arange and by a buffer.
      {"  t = s.size(2)\n  i = torch.arange(t)\n"
       "  w = s.masked_fill(i.unsqueeze(0) > i.unsqueeze(1), float('-inf')).softmax(-1)\n",
       kAttention, "boolean", "become 0"},  // as many keys as queries is not proved
      {"  m = torch.arange(s.size(3)).unsqueeze(0) > torch.arange(s.size(2)).unsqueeze(1)\n"
       "  w = s.masked_fill(m, float('-inf')).softmax(-1)\n",
       kAttention, "causal", ""},
      {"  w = torch.where(self.tril[:, :, :s.size(2), :s.size(3)], s * 0.25, "
       "-3.4028234663852886e38).softmax(-1)\n",
       kAttention, "causal", ""},
      // minGPT's.
      {"  w = s.masked_fill(self.triangle[:s.size(2), :s.size(3)] == 0, "
       "float('-inf')).softmax(-1)\n",
       kAttention, "causal", ""},
      {"  w = s.masked_fill(self.tril[:, :, :s.size(2), :s.size(3)] == True, -1.0).softmax(-1)\n",
       kAttention, "boolean, filled", ""},
      {"  m = torch.arange(s.size(3)).unsqueeze(0) <= torch.arange(s.size(2)).unsqueeze(1)\n"
       "  a = torch.where(m, 0.0, -3.4028234663852886e38).to(6)\n"
       "  w = (s * 0.25 + a).softmax(-1)\n",
       kAttention, "causal", ""},
      // A causal fill that a score may reach stays a value.
      {"  m = torch.arange(s.size(3)).unsqueeze(0) > torch.arange(s.size(2)).unsqueeze(1)\n"
       "  w = s.masked_fill(m, -10000.0).softmax(-1)\n",
       kAttention, "boolean, filled", ""},
      // A mask that makes the scores larger.
      {"  w = (s[:1] + torch.ones([2, 1, 1, s.size(3)], dtype=6)).softmax(-1)\n", kAttention,
       "additive", ""},
      {"  w = s[:, :1].masked_fill(torch.ones([4, 3, 1, 1]) > 2.0, -1.0).softmax(-1)\n", kAttention,
       "boolean, filled", ""},
      // Shifted: not the operator's rule.
      {"  w = s.masked_fill(keys >= queries, float('-inf')).softmax(-1)\n", kAttention, "boolean",
       "become 0"},
      {"  m = torch.arange(s.size(3)).unsqueeze(0) > torch.arange(s.size(2)).unsqueeze(1) + 1\n"
       "  w = s.masked_fill(m, float('-inf')).softmax(-1)\n",
       kAttention, "boolean", "become 0"},
      {"  w = torch.dropout(s * 0.5, 0.1, False).softmax(-1)\n", kAttention, "none", ""},
      {"  w = (s * 0.5).softmax(-1, dtype=6).to(6)\n", kAttention, "none", ""},
  };
  std::ranges::for_each(cases, check);
}

TEST_CASE("two masks become one call where that is equal", "[rewrite]") {
  const std::string causal =
      "  c = keys > queries\n  h = visible.logical_not()\n  f = addend.to(6)\n"
      "  m = torch.where(c, -3.4028234663852886e38, 0.0).to(6)\n"
      "  n = torch.where(c, -10000.0, 0.0).to(6)\n  x = s * 0.5\n";
  const Expected cases[] = {
      // A learned bias and the causal rule, in both orders and forms.
      {"  w = (x + self.bias + m).softmax(-1)\n", kAttention, "causal + additive", ""},
      {"  w = (x + m + self.bias).softmax(-1)\n", kAttention, "causal + additive", ""},
      {"  w = (x + self.bias).masked_fill(c, float('-inf')).softmax(-1)\n", kAttention,
       "causal + additive", ""},
      {"  w = (x.masked_fill(c, float('-inf')) + self.bias).softmax(-1)\n", kAttention,
       "causal + additive", ""},
      {"  w = torch.where(c, -3.4028234663852886e38, x + self.bias).softmax(-1)\n", kAttention,
       "causal + additive", ""},
      // An addend of unknown numbers: the rule only where hidden keys have -inf.
      {"  w = (x + f).masked_fill(c, float('-inf')).softmax(-1)\n", kAttention, "causal + additive",
       "become 0"},
      {"  w = (x + f).masked_fill(c, -3.4028234663852886e38).softmax(-1)\n", kAttention,
       "boolean, filled", "beside an additive one"},
      {"  w = (x.masked_fill(c, -3.4028234663852886e38) + f).softmax(-1)\n", kAttention, "additive",
       "a finite fill hides"},
      // Positions.
      {"  w = (x + self.bias).masked_fill(keys > pos.unsqueeze(1).unsqueeze(3), float('-inf'))"
       ".softmax(-1)\n",
       kAttention, "query positions + additive", "become 0"},
      {"  w = x.masked_fill(c, float('-inf'))"
       ".masked_fill(keys > pos.unsqueeze(1).unsqueeze(3), float('-inf')).softmax(-1)\n",
       kAttention, "causal + query positions", "become 0"},
      // A boolean mask: a rule goes over its fill, its fill does not go over a rule.
      {"  w = x.masked_fill(h, float('-inf')).masked_fill(c, float('-inf')).softmax(-1)\n",
       kAttention, "causal + boolean", "become 0"},
      {"  w = x.masked_fill(h, -10000.0).masked_fill(c, float('-inf')).softmax(-1)\n", kAttention,
       "causal + boolean, filled", ""},
      {"  w = x.masked_fill(c, float('-inf')).masked_fill(h, -10000.0).softmax(-1)\n", kAttention,
       "boolean, filled", "over keys that a rule hides"},
      {"  w = x.masked_fill(c, -3.4028234663852886e38).masked_fill(h, float('-inf')).softmax(-1)\n",
       kAttention, "boolean", "over keys that a rule hides"},
      // Two tensors.
      {"  w = x.masked_fill(h, -2.0).masked_fill(keys >= queries, -2.0).softmax(-1)\n", kAttention,
       "boolean, filled", ""},
      {"  w = x.masked_fill(h, -2.0).masked_fill(keys >= queries, -1.0).softmax(-1)\n", kAttention,
       "boolean, filled", "different fills"},
      {"  w = (x + self.bias + torch.where(visible, 0.0, -100.0).to(6)).softmax(-1)\n", kAttention,
       "additive", ""},
      {"  p = torch.where(visible, 0.0, -3.4028234663852886e38).to(6)\n"
       "  q = torch.where(keys >= queries, -3.4028234663852886e38, 0.0).to(6)\n"
       "  w = (x + p + q).softmax(-1)\n",
       kAttention, "additive", "become 0"},
      {"  w = (x + self.bias + n).softmax(-1)\n", kAttention, "additive", "rounded otherwise"},
      {"  w = (x + self.bias).masked_fill(h, float('-inf')).softmax(-1)\n", kAttention, "boolean",
       "beside an additive one"},
      // Three.
      {"  w = (x + self.bias + torch.where(visible, 0.0, -100.0).to(6))"
       ".masked_fill(c, float('-inf')).softmax(-1)\n",
       kAttention, "causal + additive", ""},
  };
  for (const Expected& expected : cases) {
    check(
        {(causal + expected.lines).c_str(), expected.operator_after, expected.mask, expected.note});
  }
}

TEST_CASE("a buffer that holds a fill is a mask, not a learned bias", "[rewrite]") {
  Rewritten model = rewritten(
      "  w = (s + self.padding).masked_fill(keys > queries, -3.4028234663852886e38).softmax(-1)\n");
  CHECK(model.only().mask == "boolean, filled");
  const std::vector<c10::IValue> arguments = attention_inputs(2, 5, 7);
  CHECK(at::allclose(result_of(model.module, arguments).value(),
                     result_of(model.original, arguments).value()));
}

TEST_CASE("what is not proved stays as it is, with the reason", "[rewrite]") {
  const Expected cases[] = {
      {"  x = s * 0.5\n  w = x.softmax(-1) + x\n", kPlain, "none", "another use"},
      {"  x = s * 0.5\n  y = x.add_(1.0)\n  w = (y * 2.0).softmax(-1)\n", kPlain, "none",
       "not proved to be a product"},
      {"  x = s * 0.5\n  s.add_(1.0)\n  w = x.softmax(-1) * s\n", kPlain, "none", "in place"},
      // A mask made of tensors that are written to in place is not what made them.
      {"  i = torch.arange(s.size(3))\n  i.add_(1)\n"
       "  w = s.masked_fill(i.unsqueeze(0) > queries, float('-inf')).softmax(-1)\n",
       kAttention, "boolean", "become 0"},
      {"  m = keys > queries\n  m.logical_not_()\n"
       "  w = s.masked_fill(m, -10000.0).softmax(-1)\n",
       kPlain, "none", "in place"},
      {"  w = (s * 0.5).softmax(2)\n", kPlain, "none", "not over the last dimension"},
      {"  w = (s * 0.5).softmax(int(s.size(0)) - 3)\n", "", "none", "no constant"},
      {"  w = (s / 3.0).softmax(-1)\n", kPlain, "none", "no product equals"},
      {"  w = (s * 0.5).softmax(-1, dtype=7)\n", kPlain, "none", "dtype argument"},
      {"  w = (s + addend.to(7)).softmax(-1)\n", kPlain, "none", "another dtype"},
      {"  w = torch._softmax(s, 3, True)\n", "", "none", "half_to_float"},
      {"  w = torch.add(s, addend, alpha=2).softmax(-1)\n", kPlain, "none", ""},
      {"  w = (s.unsqueeze(0) * 0.5).softmax(-1)[0]\n", kPlain, "none", "5 dimensions"},
      {"  w = (s * addend).softmax(-1)\n", kPlain, "none", ""},
  };
  std::ranges::for_each(cases, check);
}

TEST_CASE("scores that are integers are left to ATen, which makes floats of them", "[rewrite]") {
  const Expected cases[] = {
      {"  w = (torch.matmul(pos, pos.t()) * 0.5).softmax(-1)\n", kPlain, "none", ""},
      {"  n = torch.matmul(pos, pos.t())\n"
       "  w = torch.where(n > 9, n, -1.5).softmax(-1)\n",
       kPlain, "none", "integers"}};
  std::ranges::for_each(cases, check);
}

TEST_CASE("dropout in training mode stays, and the softmax before it is routed", "[rewrite]") {
  const Rewritten model = rewritten("  w = torch.dropout((s * 0.5).softmax(-1), 0.5, True)\n");
  CHECK(model.only().operator_after == kAttention);
  const std::string graph = model.module.get_method("forward").graph()->toString();
  CHECK(graph.find("aten::dropout") != std::string::npos);
}

TEST_CASE("dropout in eval mode behind attention's softmax is removed", "[rewrite]") {
  const std::string lines =
      "  p = torch.dropout((s * 0.5).masked_fill(keys > queries, float('-inf')).softmax(-1), 0.5, "
      "False)\n  w = torch.matmul(p, k)\n";
  check({lines.c_str(), kAttention, "causal", ""});
  const Rewritten model = rewritten(lines);
  const std::string graph = model.module.get_method("forward").graph()->toString();
  CHECK(graph.find("aten::dropout") == std::string::npos);
}

TEST_CASE("a softmax in a loop and in a branch is routed", "[rewrite]") {
  check({"  w = s\n  for i in range(3):\n    w = (w * 0.5).softmax(-1)\n", kPlain, "none",
         "dimensions is unknown"});
  check(
      {"  w = s\n  if bool(q.sum() > 1e9):\n    w = s + 1.0\n  else:\n"
       "    w = (s * 0.5).softmax(-1)\n",
       kAttention, "none", ""});
}

TEST_CASE("keep_nan leaves masks that may hide a row to ATen", "[rewrite]") {
  const std::string masked =
      "  w = (s * 0.5).masked_fill(visible == False, float('-inf')).softmax(-1)\n";
  Rewritten model = rewritten(masked, true);
  CHECK(model.only().operator_after == kPlain);
  const at::Tensor before = result_of(model.original, attention_inputs(2, 5, 7)).value();
  CHECK(before.isnan().any().item<bool>());
  CHECK(at::allclose(result_of(model.module, attention_inputs(2, 5, 7)).value(), before, 1e-5, 1e-6,
                     true));
  // Causal rows see their first key.
  const Rewritten causal = rewritten(
      "  m = torch.arange(s.size(3)).unsqueeze(0) > torch.arange(s.size(2)).unsqueeze(1)\n"
      "  w = s.masked_fill(m, float('-inf')).softmax(-1)\n",
      true);
  CHECK(causal.only().mask == "causal");
}

TEST_CASE("device literals are replaced", "[rewrite]") {
  jit::Module module = module_of_source(
      "x: Tensor", "  return (x + torch.zeros([1], device=torch.device('cpu'))).softmax(-1)");
  const Rewritten model(
      module,
      {.methods = {}, .arguments = {}, .device = c10::Device(c10::kMeta), .keep_nan = false});
  CHECK(model.report.retargeted_devices == 1);
}

TEST_CASE("scaled_dot_product_attention is counted and left", "[rewrite]") {
  const Rewritten model(module_of_source(
      "q: Tensor", "  return torch.scaled_dot_product_attention(q, q, q, None, 0.0, True)"));
  CHECK(model.report.sdpa_calls == 1);
  CHECK(model.report.softmaxes.empty());
}
