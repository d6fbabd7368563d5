#include "common/cuda_launch.h"
#include "common/registration.h"
#include "fused_logprob/fused_logprob_backend.h"
#include "fused_logprob/fused_logprob_kernel.h"

namespace warpfuse {
namespace {

struct Cuda {
  static inline Counter calls[] = {Counter("fused_logprob.cuda"), Counter("fused_logprob_lse.cuda"),
                                   Counter("fused_logprob_entropy.cuda")};
  static inline Counter backward_calls{"fused_logprob_backward.cuda"};

  static void forward(const char* op, c10::Device device, const FusedLogprobArguments& arguments) {
    launch_on(op, device, [&](cudaStream_t stream, Workspace&) {
      return fused_logprob_cuda(arguments, stream);
    });
  }

  static void backward(const char* op, c10::Device device,
                       const FusedLogprobBackwardArguments& arguments) {
    launch_on(op, device, [&](cudaStream_t stream, Workspace&) {
      return fused_logprob_backward_cuda(arguments, stream);
    });
  }
};

WARPFUSE_LIBRARY_IMPL(CUDA, m) { FusedLogprob<Cuda>::register_in(m); }

}  // namespace
}  // namespace warpfuse
