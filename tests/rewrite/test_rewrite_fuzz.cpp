// Random chains before a softmax: rewritten, they give what the original gives, or raise as it
// does. WARPFUSE_FUZZ_CHAINS sets how many; a failure names the seed and the code.

#include <cstdlib>
#include <random>

#include "rewrite/rewritten.h"
#include "support/catch.h"

namespace {

constexpr int kChains = 500;

class ChainMaker {
 public:
  explicit ChainMaker(unsigned seed) : random_(seed) {}

  // Code that makes w from the scores s.
  std::string code() {
    std::string lines = "  x = s\n";
    if (pick(4) == 0) {
      lines += masks();
    } else {
      for (int left = pick(4); left > 0; --left) {
        lines += step();
      }
    }
    if (pick(10) == 0) {
      lines += windows();
    }
    const std::string softmax =
        one_of({"x.softmax(-1)", "x.softmax(3)", "x.softmax(2)", "x.softmax(-1, dtype=6)",
                "x.log_softmax(-1)", "x.softmax(-1).to(6)"});
    switch (pick(6)) {
      case 0:
        return lines + "  w = " + softmax + " + x.nan_to_num(0.0, 0.0, 0.0)\n";
      case 1:
        return lines + "  w = s\n  for i in range(2):\n    w = " + softmax + " + w\n";
      case 2:
        return lines + "  if bool(s.sum() > 0):\n    w = " + softmax + "\n  else:\n    w = x\n";
      default:
        return lines + "  w = " + softmax + "\n";
    }
  }

 private:
  int pick(int count) { return std::uniform_int_distribution(0, count - 1)(random_); }
  std::string one_of(std::initializer_list<const char*> texts) {
    return texts.begin()[pick(static_cast<int>(texts.size()))];
  }
  // True where a key is hidden.
  std::string hidden() {
    return one_of(
        {"visible.logical_not()", "(visible == False)", "visible", "(keys > queries)",
         "(queries < keys)", "(keys >= queries)", "(keys > queries + 1)",
         "(keys + 1 > queries + 1)", "self.tril[:, :, :s.size(2), :s.size(3)].logical_not()",
         "((keys > queries).logical_or(visible))", "(keys > pos.unsqueeze(1).unsqueeze(3))",
         "self.slots[:s.size(3)] > pos.unsqueeze(1).unsqueeze(3)"});
  }
  std::string fill() {
    return one_of({"float('-inf')", "-10000.0", "-100.0", "-3.4028234663852886e38", "-1.0", "0.0"});
  }
  // A scale, and two or three masks one after another.
  std::string masks() {
    std::string lines = pick(2) == 0 ? "  x = x * 0.5\n" : "";
    for (int left = 2 + pick(2); left > 0; --left) {
      lines += mask();
    }
    return lines;
  }
  // Scores as one or two windows, which a batch of an odd number does not have, and back.
  std::string windows() {
    const std::string form = one_of({"view", "reshape"});
    const std::string masked =
        one_of({"y + self.shifted[:, :1, :1].unsqueeze(1).unsqueeze(0)",
                "y + self.shifted[:, :1, :1].unsqueeze(1)", "y + self.bias",
                "y + self.padding.unsqueeze(0)", "y.masked_fill(keys > queries, float('-inf'))",
                "y.masked_fill(self.shifted[:, :1, :1].unsqueeze(1) < 0, -1.0)",
                "y + torch.where(keys > queries, -100.0, 0.0).to(6)", "y + addend"});
    const std::string heads = one_of({"n, 3", "n, 3", "n, 3", "3, n"});
    return "  n = " + std::string(one_of({"2", "1", "1"})) + "\n  y = x." + form +
           "([s.size(0) // n, " + heads + ", s.size(2), s.size(3)])\n  y = " + masked +
           "\n  x = y." + form + "([-1, 3, s.size(2), s.size(3)])\n";
  }
  std::string mask() {
    switch (pick(6)) {
      case 0:
        return "  x = x.masked_fill(" + hidden() + ", " + fill() + ")\n";
      case 1:
        return "  x = torch.where(" + hidden() + ", " + fill() + ", x)\n";
      case 2:
        return "  x = x + torch.where(" + hidden() + ", " + fill() + ", 0.0).to(6)\n";
      case 3:
        return "  x = x + torch.where(" + hidden() + ", 0.0, -3.4028234663852886e38).to(6)\n";
      case 4:
        return "  x = x + self.bias\n";
      default:
        return "  x = " +
               std::string(
                   one_of({"x + addend.to(6)", "self.padding + x", "x + self.bias * 2.0"})) +
               "\n";
    }
  }
  std::string step() {
    const std::string factor = one_of({"0.5", "0.3", "8.0", "-1.0", "torch.tensor(0.25)"});
    switch (pick(9)) {
      case 0:
        return "  x = x * " + factor + "\n";
      case 1:
        return "  x = " + factor + " * x\n";
      case 2:
        return "  x = x / " + factor + "\n";
      case 3:
        return "  x = x.masked_fill(" + hidden() + ", " + fill() + ")\n";
      case 4:
        return "  x = torch.where(" + hidden() + ", " + fill() + ", x)\n";
      case 5:
        return "  x = torch.where(" + hidden() + ", x, " + fill() + ")\n";
      case 6:
        return "  x = x + torch.where(" + hidden() + ", " + fill() + ", " + one_of({"0.0", "1.0"}) +
               ").to(6)\n";
      case 7:
        return "  x = x + " + one_of({"addend", "addend.to(6)", "self.bias", "1.0"}) + "\n";
      default:
        return one_of({"  x = x.to(6)\n", "  x = torch.dropout(x, 0.5, False)\n",
                       "  x = x.contiguous()\n", "  x = x.clone().add_(1.0)\n",
                       "  y = x * 2.0\n  x.mul_(2.0)\n  x = y + x.detach() * 0.0\n"});
    }
  }

  std::mt19937 random_;
};

struct Outcome {
  bool equal = true;
  int64_t routed = 0, fused = 0;
};

Outcome compare(const std::string& code, bool keep_nan) {
  Rewritten model(attention_model(code), attention_options(keep_nan));
  Outcome outcome;
  bool nan_becomes_zero = false;
  for (const warpfuse::RewrittenSoftmax& softmax : model.report.softmaxes) {
    outcome.routed += softmax.operator_after.empty() ? 0 : 1;
    outcome.fused += softmax.operator_after == "warpfuse::scaled_masked_softmax" ? 1 : 0;
    nan_becomes_zero = nan_becomes_zero || softmax.note.find("become 0") != std::string::npos;
  }
  for (const auto& [batch, queries, keys] :
       {std::tuple{2, 5, 7}, {1, 1, 1}, {3, 6, 6}, {4, 3, 3}}) {
    const std::optional<at::Tensor> before =
        result_of(model.original, attention_inputs(batch, queries, keys));
    const std::optional<at::Tensor> after =
        result_of(model.module, attention_inputs(batch, queries, keys));
    if (before.has_value() != after.has_value()) {
      outcome.equal = false;
    } else if (before) {
      // Where ATen has NaN in a row that is hidden throughout, the plugin has 0.
      const at::Tensor is_free =
          nan_becomes_zero ? before->isnan() : at::zeros_like(*before, at::kBool);
      outcome.equal = outcome.equal && after->scalar_type() == before->scalar_type() &&
                      at::allclose(after->masked_fill(is_free, 0), before->masked_fill(is_free, 0),
                                   1e-4, 1e-5, /*equal_nan=*/true);
    }
  }
  return outcome;
}

}  // namespace

TEST_CASE("random chains give what they gave, or are left", "[rewrite][fuzz]") {
  const char* asked = std::getenv("WARPFUSE_FUZZ_CHAINS");
  const int chains = asked != nullptr ? std::stoi(asked) : kChains;
  int64_t fused = 0, routed = 0;
  for (int seed = 0; seed < chains; ++seed) {
    const std::string code = ChainMaker(static_cast<unsigned>(seed)).code();
    INFO("seed " << seed << "\n" << code);
    const Outcome outcome = compare(code, seed % 2 == 1);
    CHECK(outcome.equal);
    fused += outcome.fused;
    routed += outcome.routed;
  }
  WARN(routed << " softmax calls routed in " << chains << " chains, " << fused
              << " with their chain");
  CHECK(fused > chains / 8);
}
