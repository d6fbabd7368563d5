// Epilogues fused into a layer's matmul: in the graphs of a model, and on a GPU.

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "method_graph.h"
#include "runtime/decode/cuda_runtime.h"
#include "runtime/load/graph_passes.h"
#include "runtime/load/plugin.h"
#include "support/devices.h"

namespace {

namespace jit = torch::jit;

// [2, 3] tokens x of width 8 -> 16; what follows the layer is `rest`, which has `residual` too, as
// wide as the layer. A transposed weight is [out, in] in the module.
jit::Module model(const std::string& rest, at::ScalarType dtype = at::kFloat,
                  bool transposed = false) {
  at::manual_seed(1);
  jit::Module module("Model");
  const auto add = [&](const char* name, at::IntArrayRef shape) {
    module.register_parameter(name, at::randn(shape).to(dtype), false);
  };
  const std::vector<int64_t> plain{8, 16}, other{16, 8};
  add("weight", transposed ? other : plain);
  add("bias", {16});
  add("before", {8, 16});
  module.define(
      "def layer(self, x):\n"
      "  residual = torch.matmul(x, self.before)\n"
      "  flat = torch.addmm(self.bias, x.reshape(-1, 8), self.weight" +
      std::string(transposed ? ".t()" : "") +
      ")\n"
      "  layer = flat.view([x.size(0), x.size(1), 16])\n"
      "  return " +
      rest + "\n");
  module.define("def decode(self, x):\n  return self.layer(x)\n");
  return module;
}

const std::string kTanh = "torch.gelu(layer, approximate='tanh')";

// The same in double by other means: the model on the CPU, where nothing is fused.
at::Tensor in_double(const std::string& rest, const at::Tensor& x, at::ScalarType dtype,
                     bool transposed) {
  jit::Module module = model(rest, dtype, transposed);
  module.to(at::kDouble);
  return run_method(module, "decode", x.to(at::kDouble));
}

int64_t count(const jit::Module& module, const char* kind) {
  return count_nodes(module, "decode", kind);
}

bool is_fused(jit::Module module, const char* kind) {
  warpfuse::host::fuse_epilogues(module);
  return count(module, kind) == 1;
}

bool is_gelu_fused(const jit::Module& module) {
  return is_fused(module, "aten::_addmm_activation");
}

bool is_residual_fused(const jit::Module& module) {
  return is_fused(module, "warpfuse_host::linear_add");
}

// Whether the module with linear_add is there, which needs libtorch for CUDA, but no GPU.
bool has_linear_add() {
  return warpfuse::host::try_open_library("libtorch_cuda.so") &&
         warpfuse::host::load_cuda_operators();
}

void check_on_gpu(const std::string& rest, const char* kind, bool transposed = false) {
  for (const auto& [dtype, tolerance] :
       {std::pair{at::kFloat, 1e-5}, {at::kHalf, 4e-3}, {at::kBFloat16, 4e-2}}) {
    INFO(dtype);
    const at::Tensor x = at::randn({2, 3, 8}).to(dtype);
    jit::Module module = model(rest, dtype, transposed);
    module.to(at::kCUDA);
    warpfuse::host::fuse_epilogues(module);
    CHECK(count(module, kind) == 1);
    const at::Tensor got = run_method(module, "decode", x.to(at::kCUDA)).to(at::kCPU, at::kDouble);
    CHECK(at::allclose(got, in_double(rest, x, dtype, transposed), tolerance, tolerance));
  }
}

}  // namespace

TEST_CASE("GELU is fused into the matmul before it in its tanh form alone", "[epilogues]") {
  CHECK(is_gelu_fused(model(kTanh)));
  CHECK_FALSE(is_gelu_fused(model("torch.gelu(layer)")));
  CHECK_FALSE(is_gelu_fused(model(kTanh + " + layer")));
}

TEST_CASE("a residual connection is fused into the matmul before it", "[epilogues][cuda-build]") {
  if (!has_linear_add()) {
    skip_test("built without CUDA");
    return;
  }
  CHECK(is_residual_fused(model("residual + layer")));
  CHECK_FALSE(is_residual_fused(model("torch.add(residual, layer, alpha=2)")));
  CHECK_FALSE(is_residual_fused(model("(residual + layer) * layer")));
}

TEST_CASE("fused epilogues give the same on a GPU", "[epilogues][gpu]") {
  if (!has_linear_add() || !has_gpu()) {
    skip_test(kNoGpu);
    return;
  }
  check_on_gpu(kTanh, "aten::_addmm_activation");
  check_on_gpu("residual + layer", "warpfuse_host::linear_add");
  check_on_gpu(kTanh, "aten::_addmm_activation", /*transposed=*/true);
  check_on_gpu("residual + layer", "warpfuse_host::linear_add", /*transposed=*/true);
  SECTION("operands that cuBLASLt does not take") {
    check_on_gpu("residual.transpose(0, 1).contiguous().transpose(0, 1) + layer",
                 "warpfuse_host::linear_add");
    check_on_gpu("residual[:1, :, :] + layer", "warpfuse_host::linear_add");
  }
}
