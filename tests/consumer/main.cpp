#include <ATen/ATen.h>
#include <warpfuse/info.h>
#include <warpfuse/scaled_masked_softmax.h>
#include <warpfuse/softmax.h>

#include <iostream>

int main() {
  const at::Tensor output = warpfuse::softmax(at::zeros({2, 4}), 1);
  const at::Tensor causal =
      warpfuse::scaled_masked_softmax(at::zeros({2, 2}), 0.5, {}, "upper_left");
  std::cout << warpfuse::build_info() << "\n" << output << "\n" << causal << "\n";
  return output.eq(0.25).all().item<bool>() && causal[0][1].item<float>() == 0.0F ? 0 : 1;
}
