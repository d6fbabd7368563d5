// GELU joined to the product before it, in the graphs of a model and on a GPU.

#include <ATen/ATen.h>

#include <string>

#include "method_graph.h"
#include "runtime/gelu_epilogue.h"
#include "runtime/shared_library.h"
#include "support/devices.h"

namespace {

namespace jit = torch::jit;

// [2, 3] tokens of width 8 -> 16; what lies between and after the product is `rest`.
jit::Module model(const std::string& rest, at::ScalarType dtype = at::kFloat) {
  at::manual_seed(1);
  jit::Module module("Model");
  module.register_parameter("weight", at::randn({8, 16}).to(dtype), false);
  module.register_parameter("bias", at::randn({16}).to(dtype), false);
  module.define(
      "def layer(self, x):\n"
      "  flat = torch.addmm(self.bias, x.reshape(-1, 8), self.weight)\n" +
      rest);
  module.define("def decode(self, x):\n  return self.layer(x)\n");
  return module;
}

const std::string kTanh =
    "  return torch.gelu(flat.view([x.size(0), x.size(1), 16]), approximate='tanh')\n";

bool is_joined(jit::Module module) {
  warpfuse::host::fuse_gelu(module);
  const auto count = [&](const char* kind) { return count_nodes(module, "decode", kind); };
  const int64_t products = count("aten::addmm"), joined = count("aten::_addmm_activation");
  CHECK(products + joined == 1);
  CHECK(count("aten::gelu") == products);
  return joined == 1;
}

}  // namespace

TEST_CASE("GELU joins the product before it in its tanh form alone", "[gelu]") {
  CHECK(is_joined(model(kTanh)));
  CHECK_FALSE(is_joined(model("  return torch.gelu(flat.view([2, 3, 16]))\n")));
  CHECK_FALSE(
      is_joined(model("  layer = flat.view([2, 3, 16])\n"
                      "  return torch.gelu(layer, approximate='tanh') + layer\n")));
}

TEST_CASE("the joined GELU is the one apart, on a GPU", "[gelu][gpu]") {
  warpfuse::host::try_open_library("libtorch_cuda.so");
  if (!has_gpu()) {
    skip_test(kNoGpu);
    return;
  }
  for (const auto& [dtype, tolerance] :
       {std::pair{at::kFloat, 1e-5}, {at::kHalf, 2e-3}, {at::kBFloat16, 2e-2}}) {
    INFO(dtype);
    const at::Tensor x = at::randn({2, 3, 8}).to(dtype);
    jit::Module module = model(kTanh, dtype);
    const auto in_double = [&](const char* name) {
      return module.attr(name).toTensor().to(at::kDouble);
    };
    const at::Tensor product =
        at::addmm(in_double("bias"), x.to(at::kDouble).view({6, 8}), in_double("weight"));
    const at::Tensor expected = at::gelu(product, "tanh").view({2, 3, 16});
    module.to(at::kCUDA);
    warpfuse::host::fuse_gelu(module);
    const at::Tensor got = run_method(module, "decode", x.to(at::kCUDA)).to(at::kCPU, at::kDouble);
    CHECK(at::allclose(got, expected, tolerance, tolerance));
  }
}
