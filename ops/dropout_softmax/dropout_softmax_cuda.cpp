#include "dropout_softmax/dropout_softmax_cuda.h"

#include "common/random_cuda.h"
#include "common/registration.h"
#include "dropout_softmax/dropout_softmax.h"

namespace warpfuse {
namespace {

Counter forward_calls("dropout_softmax.cuda");
Counter backward_calls("dropout_softmax_backward.cuda");
Counter mask_calls("dropout_mask.cuda");

DropoutSoftmaxResult forward_on_cuda(const at::Tensor& self, int64_t dim, double dropout_p,
                                     bool softmax_first, const std::optional<at::Tensor>& rng) {
  constexpr const char* kOp = "_dropout_softmax";
  check_dropout_softmax(kOp, self, dim, dropout_p, rng);
  forward_calls.add();
  const at::Tensor input = self.contiguous();
  return run_dropout_softmax(
      input, at::empty_like(input), dim, dropout_p, softmax_first, rng,
      [&] { return draw_rng_on_cuda(self.device()); }, launch_forward(kOp, self.device()));
}

at::Tensor backward_on_cuda(const at::Tensor& grad_output, const at::Tensor& saved,
                            const at::Tensor& statistics, const at::Tensor& rng, int64_t dim,
                            double dropout_p, bool softmax_first) {
  return run_dropout_softmax_backward(
      backward_calls, grad_output, saved, statistics, rng, dim, dropout_p, softmax_first,
      [&](const DropoutSoftmaxBackwardArguments& arguments) {
        launch_on("_dropout_softmax_backward", saved.device(),
                  [&](cudaStream_t stream, Workspace& workspace) {
                    return dropout_softmax_backward_cuda(arguments, workspace, stream);
                  });
      });
}

at::Tensor mask_on_cuda(const at::Tensor& like, double dropout_p, const at::Tensor& rng) {
  return run_dropout_mask(
      mask_calls, like, dropout_p, rng, [&](const DropoutMaskArguments& arguments) {
        launch_on("_dropout_mask", like.device(), [&](cudaStream_t stream, Workspace&) {
          return dropout_mask_cuda(arguments, stream);
        });
      });
}

WARPFUSE_LIBRARY_IMPL(CUDA, m) {
  m.impl("_dropout_softmax", forward_on_cuda);
  m.impl("_dropout_softmax_backward", backward_on_cuda);
  m.impl("_dropout_mask", mask_on_cuda);
}

}  // namespace
}  // namespace warpfuse
