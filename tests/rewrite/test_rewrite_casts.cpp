// Casts around a softmax: which change nothing, and which are another dtype or device.

#include "rewrite/rewritten.h"
#include "support/catch.h"

TEST_CASE("a softmax in half precision keeps the dtype that it is asked for", "[rewrite]") {
  for (const char* const lines :
       {"  w = s.to(15).softmax(-1, dtype=6).to(15)\n",
        "  w = s.to(15).softmax(2, dtype=6).to(15)\n", "  w = s.to(15).softmax(-1, dtype=6)\n"}) {
    INFO(lines);
    Rewritten model(attention_model(lines), attention_options());
    check_same(model, [] { return attention_inputs(2, 5, 7); }, {1e-2, 1e-2});
  }
}

TEST_CASE("a cast to another tensor's dtype may move a tensor to its device", "[rewrite]") {
  const auto casts = [](const std::string& lines) {
    const Rewritten model(attention_model(lines), attention_options());
    int64_t count = 0;
    for (const torch::jit::Node* node : model.module.get_method("forward").graph()->nodes()) {
      count += node->kind() == torch::jit::aten::to ? 1 : 0;
    }
    return count;
  };
  CHECK(casts("  w = (s + torch.zeros([7, 7], dtype=6).to(s)).softmax(-1)\n") == 1);
  CHECK(casts("  w = s.to(5).softmax(-1, dtype=6).to(s.to(5))\n") == 2);
  CHECK(casts("  w = s.to(5).softmax(-1, dtype=6).to(torch.device('cpu'), 5)\n") == 2);
  CHECK(casts("  w = s.to(5).softmax(-1, dtype=6).to(5)\n") == 1);
}
