// A library for the tests of `warpfuse bench --algorithms`: one algorithm of ms_deform_attn by
// name, which is the plugin's operator.

#include <torch/library.h>
#include <warpfuse/ms_deform_attn.h>

TORCH_LIBRARY(warpfuse_lab, m) {
  m.def(
      "ms_deform_attn_algorithm(Tensor value, Tensor spatial_shapes, Tensor level_start_index, "
      "Tensor sampling_locations, Tensor attention_weights, str algorithm) -> Tensor",
      [](const at::Tensor& value, const at::Tensor& shapes, const at::Tensor& starts,
         const at::Tensor& locations, const at::Tensor& weights, c10::string_view name) {
        TORCH_CHECK(name == "gather",
                    "warpfuse_lab::ms_deform_attn_algorithm: algorithm: expected gather, got ",
                    name);
        return warpfuse::ms_deform_attn(value, shapes, starts, locations, weights);
      });
}
