// The interface of row functions (rowwise/cuda/row_function.cuh): the example runs in every tier.

#include <ATen/cuda/CUDAContext.h>

#include "support/devices.h"
#include "support/l2_normalise.h"
#include "support/pch.h"

WARPFUSE_GPU_TEST("a row function of one's own runs in every tier", "[row-function][portable]") {
  for (const char* kernel :
       {"warp", "chunk", "block", "persistent", "shared", "split", "cooperative"}) {
    for (const int64_t columns : {1, 3, 4, 31, 512, 777, 1000, 1023}) {
      // Rows of odd lengths start anywhere; the tensor itself starts at no pack.
      const at::Tensor x = at::randn({7 * columns + 1}, device).slice(0, 1).view({7, columns});
      at::Tensor y = at::full_like(x, NAN);
      INFO(kernel << ", " << columns << " columns");
      REQUIRE(l2_normalise(kernel, x.const_data_ptr<float>(), y.mutable_data_ptr<float>(), 7,
                           columns, at::cuda::getCurrentCUDAStream()) == cudaSuccess);
      const at::Tensor wide = x.to(at::kDouble);
      const at::Tensor expected = wide / wide.norm(2, -1, true);
      CHECK((y.to(at::kDouble) - expected).abs().max().item<double>() < 1e-6);
    }
  }
}
