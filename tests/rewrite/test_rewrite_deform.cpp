// Chains of grid_sample: which are multi-scale deformable attention, and which are left.

#include <torch/csrc/jit/serialization/import.h>

#include <sstream>

#include "rewrite/rewritten.h"
#include "support/catch.h"

namespace {

namespace jit = torch::jit;

const char* const kDeform = "warpfuse::ms_deform_attn";
const char* const kDeformSoftmax = "warpfuse::ms_deform_attn_softmax";

// As Deformable-DETR samples, of levels 3 x 4 and 2 x 2.
const std::string kSource =
    "  a, b = torch.split(v, [12, 4], 1)\n"
    "  n = v.size(0) * v.size(2)\n"
    "  grids = x * 2 - 1\n"
    "  i = a.flatten(2).transpose(1, 2).reshape([n, v.size(3), 3, 4])\n"
    "  j = b.flatten(2).transpose(1, 2).reshape([n, v.size(3), 2, 2])\n"
    "  g = grids[:, :, :, 0].transpose(1, 2).flatten(0, 1)\n"
    "  h = grids[:, :, :, 1].transpose(1, 2).flatten(0, 1)\n"
    "  s = torch.grid_sampler(i, g, 0, 0, False)\n"
    "  t = torch.grid_sampler(j, h, 0, 0, False)\n"
    "  u = w.transpose(1, 2).reshape([n, 1, x.size(1), 6])\n"
    "  r = (torch.stack([s, t], -2).flatten(-2) * u).sum(-1)\n"
    "  y = r.view([v.size(0), v.size(2) * v.size(3), x.size(1)]).transpose(1, 2).contiguous()\n";

struct DeformCase {
  std::string from, to;        // a change of the source
  const char* operator_after;  // empty: left
  const char* note;            // a part of it
};

std::string changed(const DeformCase& each) {
  std::string source = kSource;
  const size_t at = source.find(each.from);
  REQUIRE(at != std::string::npos);
  return source.replace(at, each.from.size(), each.to);
}

jit::Module deform_model(const std::string& source) {
  return module_of_source("v: Tensor, x: Tensor, w: Tensor, z: Tensor", source + "  return y");
}

// The value [B, S, H, D], locations, weights and a tensor of one dimension.
warpfuse::RewriteOptions deform_options(std::optional<c10::ScalarType> dtype = at::kFloat,
                                        const char* queries_of_weights = "Q") {
  return {.methods = {},
          .arguments = {{"forward",
                         {{.sizes = {"B", "S", "H", "D"}, .dtype = dtype},
                          {.sizes = {"B", "Q", "H", "2", "3", "2"}, .dtype = dtype},
                          {.sizes = {"B", queries_of_weights, "H", "2", "3"}, .dtype = dtype},
                          {.sizes = {"Z"}}}}}};
}

std::vector<c10::IValue> deform_inputs(int64_t batch, int64_t queries, int64_t pixels = 16,
                                       c10::ScalarType dtype = at::kFloat) {
  at::manual_seed(9);
  const at::Tensor locations = at::rand({batch, queries, 2, 2, 3, 2}) * 1.4 - 0.2;
  return {at::randn({batch, pixels, 2, 8}).to(dtype), locations.to(dtype),
          at::randn({batch, queries, 2, 2, 3}).to(dtype), at::zeros({5})};
}

// Batches, queries and pixels; 17 and 15 pixels are an error.
void check_results(Rewritten& model) {
  for (const auto& [batch, queries, pixels] :
       {std::tuple{1, 1, 16}, {2, 5, 16}, {3, 2, 16}, {2, 5, 17}, {2, 5, 15}}) {
    INFO(batch << " " << queries << " " << pixels);
    check_same(model, [=] { return deform_inputs(batch, queries, pixels); }, {1e-5, 1e-5});
  }
}

const warpfuse::RewrittenSoftmax& chain_of(const Rewritten& model) {
  static warpfuse::RewrittenSoftmax chain;
  REQUIRE(model.report.grid_sample_chains().size() == 1);
  chain = model.report.grid_sample_chains()[0];
  return chain;
}

void check_deform(const DeformCase& each,
                  const warpfuse::RewriteOptions& options = deform_options()) {
  INFO(each.to);
  Rewritten model(deform_model(changed(each)), options);
  const warpfuse::RewrittenSoftmax& chain = chain_of(model);
  INFO(chain.note);
  CHECK(chain.operator_after == each.operator_after);
  CHECK(chain.note.find(each.note) != std::string::npos);
  CHECK(chain.note.empty() == !chain.operator_after.empty());
  check_results(model);
  CHECK(warpfuse::rewrite(model.module, options).routed() == 0);
}

}  // namespace

TEST_CASE("a chain of grid_sample becomes ms_deform_attn", "[rewrite]") {
  const DeformCase cases[] = {
      {"", "", kDeform, ""},
      {"  grids = x * 2 - 1\n", "  grids = (x * 2).contiguous() - 1.0\n", kDeform, ""},
      {"grids[:, :, :, 1].transpose(1, 2).flatten(0, 1)",
       "torch.split(grids, [1, 1], 3)[1].squeeze(3).transpose(1, 2).flatten(0, 1)", kDeform, ""},
      {"grids[:, :, :, 0]", "grids.unbind(3)[0]", kDeform, ""},
      {"a.flatten(2).transpose(1, 2).reshape([n, v.size(3), 3, 4])",
       "a.permute([0, 2, 3, 1]).reshape([n, -1, 3, 4])", kDeform, ""},
      {"torch.stack([s, t], -2).flatten(-2)", "torch.cat([s, t], -1)", kDeform, ""},
      {"torch.stack([s, t], -2)", "torch.stack([s, t], 2).transpose(2, 3)", kDeform, ""},
      {"(torch.stack([s, t], -2).flatten(-2) * u).sum(-1)",
       "(u.view([n, 1, x.size(1), 2, 3]) * torch.stack([s, t], 3)).sum([-1, -2])", kDeform, ""},
      {"(torch.stack([s, t], -2).flatten(-2) * u).sum(-1)",
       "(s * w[:, :, :, 0].transpose(1, 2).flatten(0, 1).unsqueeze(1)).sum(-1) + "
       "(t * w[:, :, :, 1].transpose(1, 2).flatten(0, 1).unsqueeze(1)).sum(-1)",
       kDeform, ""},
      {".transpose(1, 2).contiguous()\n", ".transpose(1, 2)\n  y = y + 1\n", kDeform, ""},
  };
  for (const DeformCase& each : cases) {
    check_deform(each);
  }
}

TEST_CASE("a chain of grid_sample that is something else is left", "[rewrite]") {
  const DeformCase cases[] = {
      {"g, 0, 0, False", "g, 0, 0, True", "", "align_corners"},
      {"h, 0, 0, False", "h, 0, 1, False", "", "bilinear"},
      {"h, 0, 0, False", "h, 1, 0, False", "", "bilinear"},
      {"h, 0, 0, False", "h, 0, 0, bool(x.size(1) == 1)", "", "bilinear"},
      {".contiguous()\n", ".contiguous() + s.sum()\n", "", "another use"},
      {".contiguous()\n", ".contiguous() + r.sum()\n", "", "another use"},
      {"  y = r.view(", "  y = r\n  if x.size(1) > 0:\n    y = r.view(", "", "another use"},
      {"[s, t]", "[t, s]", "", "no weights"},
      {"x * 2 - 1", "x * 2 - 2", "", "no locations"},
      {"x * 2 - 1", "x - 1", "", "no locations"},
      {"x * 2 - 1", "(x - 1) * 2", "", "no locations"},
      {"grids[:, :, :, 1]", "grids[:, :, :, 0]", "", "not each sampled once"},
      {"grids[:, :, :, 1]", "grids[:, :, :, 1].flip([2])", "", "no locations"},
      {"reshape([n, v.size(3), 3, 4])", "reshape([n, v.size(3), 4, 3]).transpose(2, 3)", "",
       "no value"},
      {"a.flatten(2).transpose(1, 2)", "a.transpose(2, 3).flatten(2).transpose(1, 2)", "",
       "no value"},
      {"torch.split(v, [12, 4], 1)", "torch.split(v, [z.size(0) + 7, 4], 1)", "", "constant sizes"},
      {"a, b = torch.split(v, [12, 4], 1)", "b, a = torch.split(v, [4, 12], 1)", "",
       "pixels in order"},
      {"w.transpose(1, 2)", "w.transpose(3, 4).transpose(1, 2)", "", "no weights"},
      {"w.transpose(1, 2)", "w.transpose(1, 2).exp().transpose(2, 3)", "", "no weights"},
      {"  u = w.", "  u = w[:, :1].", "", ""},
      {"stack([s, t], -2)", "stack([s, t], 2)", "", "no weights"},
      {"stack([s, t], -2)", "stack([s, t], 2).exp()", "", "not weighted and summed"},
      {"* u).sum(-1)", "* u).sum([-1], True).squeeze(-1)", "", "not over levels and points"},
      {"* u).sum(-1)", "* u).sum(2)", "", ""},
      {".transpose(1, 2).contiguous()", "", "", "does not become"},
      {"  n = v", "  v.add_(1.0)\n  n = v", "", "in place"},
      {".contiguous()\n", ".contiguous()\n  w.add_(1.0)\n", "", "in place"},
      {"  n = v", "  b.mul_(2.0)\n  n = v", "", "in place"},
  };
  for (const DeformCase& each : cases) {
    check_deform(each);
  }
}

TEST_CASE("ranks and dtypes of a chain must be known", "[rewrite]") {
  check_deform({"", "", "", "no value"}, {});
  check_deform({"", "", "", "unknown"}, deform_options(std::nullopt));
  warpfuse::RewriteOptions options = deform_options();
  options.arguments["forward"][2].dtype = at::kDouble;
  check_deform({"", "", "", "other dtypes"}, options);
}

TEST_CASE("a size that ATen asks for is asked for by the routed chain", "[rewrite]") {
  // The batch of the trace is two; check_results() gives others too.
  check_deform({"n = v.size(0) * v.size(2)", "n = 2 * v.size(2)", kDeform, ""});
  // The queries of the weights follow from the view of them.
  check_deform({"", "", kDeform, ""}, deform_options(at::kFloat, "R"));
  check_deform({"x.size(1), 6]", "z.size(0), 6]", "", "another tensor"});
  check_deform({"x.size(1), 6]", "z.size(0), 6]", "", "no weights"},
               deform_options(at::kFloat, "R"));
}

TEST_CASE("a softmax over levels and points is the operator's", "[rewrite]") {
  const char* const before = "  u = w.";
  const std::string softmax = "  p = w.flatten(-2).softmax(-1)\n";
  check_deform({before, softmax + "  u = p.view_as(w).", kDeformSoftmax, ""});
  check_deform({before, softmax + "  u = p.view([w.size(0), w.size(1), w.size(2), 2, 3]).",
                kDeformSoftmax, ""});
  // With another use, or over points alone, it stays a softmax.
  const std::string others[] = {softmax + "  z = p.sum()\n  u = p.view_as(w).",
                                "  u = w.softmax(-1).",
                                "  p = w.flatten(-2).softmax(2)\n  u = p.view_as(w)."};
  for (const std::string& lines : others) {
    DeformCase each{before, lines, kDeform, ""};
    std::string source = changed(each);
    source += "  y = y + z.sum()\n";
    Rewritten model(deform_model(source), deform_options());
    INFO(lines);
    REQUIRE(model.report.softmaxes.size() == 2);
    CHECK(model.report.softmaxes[0].operator_after == "warpfuse::softmax");
    CHECK(chain_of(model).operator_after == kDeform);
    check_results(model);
  }
}

TEST_CASE("a chain keeps its dtype", "[rewrite]") {
  for (const auto& [dtype, tolerance] :
       {std::pair{at::kDouble, 1e-12}, {at::kHalf, 2e-2}, {at::kBFloat16, 1e-1}}) {
    INFO(dtype);
    Rewritten model(deform_model(kSource), deform_options(dtype));
    CHECK(chain_of(model).operator_after == kDeform);
    check_same(model, [dtype] { return deform_inputs(2, 5, 16, dtype); }, {tolerance, tolerance});
  }
}

TEST_CASE("half precision that is widened for the chain alone stays half", "[rewrite]") {
  DeformCase each{"  a, b =", "  v = v.to(6)\n  x = x.to(6)\n  w = w.to(6)\n  a, b =", kDeform, ""};
  Rewritten model(deform_model(changed(each) + "  y = y.to(5)\n"), deform_options(at::kHalf));
  CHECK(chain_of(model).operator_after == kDeform);
  check_same(model, [] { return deform_inputs(2, 5, 16, at::kHalf); }, {2e-3, 2e-3});
  int casts = 0;
  for (const jit::Node* node : model.module.get_method("forward").graph()->nodes()) {
    casts += node->kind() == jit::aten::to ? 1 : 0;
  }
  CHECK(casts == 2);  // of locations and weights
}

TEST_CASE("a grid_sample by itself is left", "[rewrite]") {
  const Rewritten model(
      module_of_source("v: Tensor, x: Tensor", "  return torch.grid_sampler(v, x, 0, 0, False)"));
  CHECK(model.only().operator_before == "aten::grid_sampler");
  CHECK(model.only().operator_after.empty());
  CHECK(model.only().note.find("not weighted and summed") != std::string::npos);
  CHECK(model.report.routed() == 0);
}

TEST_CASE("chains in a branch and in a loop are routed", "[rewrite]") {
  std::string body;
  std::istringstream lines(kSource);
  for (std::string line; std::getline(lines, line);) {
    body += "  " + line + "\n";
  }
  for (const char* const header : {"  if v.size(0) > 1:\n", "  for k in range(2):\n"}) {
    std::string source = "  y = v.flatten(2)[:, :1]\n";
    source.append(header).append(body);
    Rewritten model(deform_model(source), deform_options());
    CHECK(chain_of(model).operator_after == kDeform);
    check_results(model);
  }
}

TEST_CASE("the levels are buffers of the module, one pair for equal levels", "[rewrite]") {
  const std::string twice = kSource + "  k = y\n  x = x * 0.5 + 0.25\n" + kSource;
  Rewritten model(deform_model(twice + "  y = y + k\n"), deform_options());
  REQUIRE(model.report.grid_sample_chains().size() == 2);
  CHECK(model.report.routed() == 2);
  check_results(model);
  CHECK(model.module.buffers().size() == 2);
  std::stringstream file;
  model.module.save(file);
  jit::Module loaded = jit::load(file);
  CHECK(loaded.buffers().size() == 2);
  CHECK(loaded.attr("warpfuse_spatial_shapes_3x4_2x2")
            .toTensor()
            .equal(at::tensor({3, 4, 2, 2}, at::kLong).view({2, 2})));
  CHECK(loaded.attr("warpfuse_level_start_index_3x4_2x2")
            .toTensor()
            .equal(at::tensor({0, 12}, at::kLong)));
  const std::vector<c10::IValue> inputs = deform_inputs(2, 5);
  CHECK(result_of(loaded, inputs).value().equal(result_of(model.module, inputs).value()));
}
