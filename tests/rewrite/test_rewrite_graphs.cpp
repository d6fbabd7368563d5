// Chains before a softmax: what the rewrite proves of them, and what it leaves.

#include "rewrite/rewritten.h"
#include "support/catch.h"

namespace {

namespace jit = torch::jit;

constexpr const char* kArguments =
    "q: Tensor, k: Tensor, visible: Tensor, addend: Tensor, weight: Tensor";
const char* const kAttention = "warpfuse::scaled_masked_softmax";
const char* const kPlain = "warpfuse::softmax";

const warpfuse::RewriteOptions kShapes{
    .methods = {},
    .shapes = {{"forward",
                {{"B", "H", "T", "D"},
                 {"B", "H", "S", "D"},
                 {"B", "1", "T", "S"},
                 {"B", "1", "T", "S"},
                 {"D", "D"}}}},
    .device = std::nullopt,
    .keep_nan = false};

std::vector<c10::IValue> inputs(int64_t batch = 2, int64_t queries = 5, int64_t keys = 7) {
  at::manual_seed(3);
  at::Tensor visible = at::rand({batch, 1, queries, keys}) < 0.6;
  visible.select(2, 0).fill_(false);  // a row that sees nothing
  return {at::randn({batch, 3, queries, 8}), at::randn({batch, 3, keys, 8}), visible,
          at::randn({batch, 1, queries, keys}), at::eye(8)};
}

struct Expected {
  const char* lines;
  const char* operator_after;
  const char* mask;
  const char* note;  // a part of it
};

// `lines` make w of the scores s, which are float32 for certain.
Rewritten rewritten(const std::string& lines, warpfuse::RewriteOptions options = kShapes) {
  jit::Module module("Model");
  module.register_attribute("training", c10::BoolType::get(), false);
  module.register_buffer("identity", at::eye(8));
  module.register_buffer("tril", at::ones({1, 1, 16, 16}, at::kBool).tril());
  module.register_buffer("slots", at::arange(16));
  std::string source = "def forward(self, ";
  source.append(kArguments).append("):\n");
  source.append("  s = torch.matmul(torch.matmul(q, self.identity), k.transpose(2, 3))\n");
  source.append(lines).append("  return w\n");
  module.define(source);
  return Rewritten(std::move(module), options);
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
    const std::vector<c10::IValue> arguments = inputs(batch, queries, keys);
    const std::optional<at::Tensor> before = result_of(model.original, arguments);
    const std::optional<at::Tensor> after = result_of(model.module, arguments);
    REQUIRE(before.has_value() == after.has_value());
    if (!before) {
      continue;
    }
    CHECK(after->scalar_type() == before->scalar_type());
    const bool nan_becomes_zero = softmax.note.find("become 0") != std::string::npos;
    const at::Tensor wanted = nan_becomes_zero ? before->nan_to_num(0) : *before;
    CHECK(at::allclose(*after, wanted, 1e-5, 1e-6));
  }
  const warpfuse::RewriteReport again = warpfuse::rewrite(model.module, kShapes);
  CHECK(again.routed() == 0);
}

}  // namespace

TEST_CASE("chains that are proved become one operator", "[rewrite]") {
  const Expected cases[] = {
      {"  w = s.softmax(-1)\n", kPlain, "none", ""},
      {"  w = torch.softmax(s, 3)\n", kPlain, "none", ""},
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
       kPlain, "none", "not proved to fit"},  // as many keys as queries is not proved
      {"  m = torch.arange(s.size(3)).unsqueeze(0) > torch.arange(s.size(2)).unsqueeze(1)\n"
       "  w = s.masked_fill(m, float('-inf')).softmax(-1)\n",
       kAttention, "causal", ""},
      {"  w = torch.where(self.tril[:, :, :s.size(2), :s.size(3)], s * 0.25, "
       "-3.4028234663852886e38).softmax(-1)\n",
       kAttention, "causal", ""},
      {"  m = torch.arange(s.size(3)).unsqueeze(0) <= torch.arange(s.size(2)).unsqueeze(1)\n"
       "  a = torch.where(m, 0.0, -3.4028234663852886e38).to(6)\n"
       "  w = (s * 0.25 + a).softmax(-1)\n",
       kAttention, "causal", ""},
      // A causal fill that a score may reach stays a value.
      {"  m = torch.arange(s.size(3)).unsqueeze(0) > torch.arange(s.size(2)).unsqueeze(1)\n"
       "  w = s.masked_fill(m, -10000.0).softmax(-1)\n",
       kAttention, "boolean, filled", ""},
      // Shifted: not the operator's rule.
      {"  m = torch.arange(s.size(3)).unsqueeze(0) > torch.arange(s.size(2)).unsqueeze(1) + 1\n"
       "  w = s.masked_fill(m, float('-inf')).softmax(-1)\n",
       kAttention, "boolean", "become 0"},
      {"  w = torch.dropout(s * 0.5, 0.1, False).softmax(-1)\n", kAttention, "none", ""},
      {"  w = (s * 0.5).softmax(-1, dtype=6).to(6)\n", kAttention, "none", ""},
  };
  for (const Expected& expected : cases) {
    check(expected);
  }
}

TEST_CASE("what is not proved stays as it is, with the reason", "[rewrite]") {
  const Expected cases[] = {
      {"  x = s * 0.5\n  w = x.softmax(-1) + x\n", kPlain, "none", "another use"},
      {"  x = s * 0.5\n  y = x.add_(1.0)\n  w = (y * 2.0).softmax(-1)\n", kPlain, "none",
       "in place"},
      {"  x = s * 0.5\n  s.add_(1.0)\n  w = x.softmax(-1) * s\n", kPlain, "none", "in place"},
      {"  w = (s * 0.5).softmax(2)\n", kPlain, "none", "not over the last dimension"},
      {"  w = (s * 0.5).softmax(int(s.size(0)) - 3)\n", "", "none", "no constant"},
      {"  w = (s / 3.0).softmax(-1)\n", kPlain, "none", "no product equals"},
      {"  w = (s * 0.5).softmax(-1, dtype=7)\n", kPlain, "none", "dtype argument"},
      {"  w = (s + addend.to(7)).softmax(-1)\n", kPlain, "none", "another dtype"},
      {"  w = torch.add(s, addend, alpha=2).softmax(-1)\n", kPlain, "none", ""},
      {"  w = (s.unsqueeze(0) * 0.5).softmax(-1)[0]\n", kPlain, "none", "5 dimensions"},
      {"  w = (s * addend).softmax(-1)\n", kPlain, "none", ""},
      {"  w = (s[:1] + torch.ones([2, 1, 1, s.size(3)])).softmax(-1)\n", kPlain, "none",
       "not proved to fit"},
  };
  for (const Expected& expected : cases) {
    check(expected);
  }
}

TEST_CASE("dropout in training mode stays, and the softmax before it is routed", "[rewrite]") {
  const Rewritten model = rewritten("  w = torch.dropout((s * 0.5).softmax(-1), 0.5, True)\n");
  CHECK(model.only().operator_after == kAttention);
  const auto nodes = model.module.get_method("forward").graph()->nodes();
  CHECK(std::any_of(nodes.begin(), nodes.end(),
                    [](const jit::Node* node) { return node->kind() == jit::aten::dropout; }));
}

TEST_CASE("a softmax in a loop and in a branch is routed", "[rewrite]") {
  check({"  w = s\n  for i in range(3):\n    w = (w * 0.5).softmax(-1)\n", kPlain, "none",
         "dimensions is unknown"});
  check({"  w = s\n  if bool(q.sum() > 1e9):\n    w = s + 1.0\n  else:\n"
         "    w = (s * 0.5).softmax(-1)\n",
         kAttention, "none", ""});
}

TEST_CASE("keep_nan leaves masks that may hide a row to ATen", "[rewrite]") {
  warpfuse::RewriteOptions options = kShapes;
  options.keep_nan = true;
  const std::string masked =
      "  w = (s * 0.5).masked_fill(visible == False, float('-inf')).softmax(-1)\n";
  Rewritten model = rewritten(masked, options);
  CHECK(model.only().operator_after == kPlain);
  const at::Tensor before = result_of(model.original, inputs()).value();
  CHECK(before.isnan().any().item<bool>());
  CHECK(at::allclose(result_of(model.module, inputs()).value(), before, 1e-5, 1e-6, true));
  // Causal rows see their first key.
  const Rewritten causal = rewritten(
      "  m = torch.arange(s.size(3)).unsqueeze(0) > torch.arange(s.size(2)).unsqueeze(1)\n"
      "  w = s.masked_fill(m, float('-inf')).softmax(-1)\n",
      options);
  CHECK(causal.only().mask == "causal");
}

TEST_CASE("device literals are replaced", "[rewrite]") {
  jit::Module module = module_of_source(
      "x: Tensor", "  return (x + torch.zeros([1], device=torch.device('cpu'))).softmax(-1)");
  const Rewritten model(module, {.methods = {},
                                 .shapes = {},
                                 .device = c10::Device(c10::kMeta),
                                 .keep_nan = false});
  CHECK(model.report.retargeted_devices == 1);
}

TEST_CASE("scaled_dot_product_attention is counted and left", "[rewrite]") {
  const Rewritten model(module_of_source(
      "q: Tensor", "  return torch.scaled_dot_product_attention(q, q, q, None, 0.0, True)"));
  CHECK(model.report.sdpa_calls == 1);
  CHECK(model.report.softmaxes.empty());
}
