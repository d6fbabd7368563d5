#include "gpt2_step/gpt2_step.h"

#include <ATen/ops/add.h>
#include <ATen/ops/embedding.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <warpfuse/cached_attention_softmax.h>
#include <warpfuse/linear_argmax.h>
#include <warpfuse/linear_residual.h>
#include <warpfuse/norm_linear.h>

#include <algorithm>

#include "cached_attention_softmax/cached_attention_softmax.h"
#include "common/check.h"
#include "core/operator.h"
#include "skinny_linear/linear_inputs.h"

namespace warpfuse {
namespace {

constexpr const char* kStepOp = "gpt2_step";

/// Tensors of a layer, in the order of the schema.
enum LayerTensor {
  kNorm1Weight,
  kNorm1Bias,
  kQkvWeight,
  kQkvBias,
  kProjectionWeight,
  kProjectionBias,
  kNorm2Weight,
  kNorm2Bias,
  kInnerWeight,
  kInnerBias,
  kOuterWeight,
  kOuterBias,
  kLayerTensors
};

struct StepInputs {
  const at::Tensor& ids;                 // [B, 1]
  const at::Tensor& positions;           // [B, 1]
  const at::Tensor& cache;               // [L, 2, B, H, S, D]
  const at::Tensor& token_embedding;     // [.., C]
  const at::Tensor& position_embedding;  // [.., C]
  at::TensorList layers;                 // kLayerTensors for each layer
  const at::Tensor& norm_weight;         // [C]
  const at::Tensor& norm_bias;           // [C]
  const at::Tensor& head;                // [V, C]
  double scale, epsilon;
  c10::string_view activation;

  const at::Tensor& of_layer(int64_t layer, LayerTensor which) const {
    return layers[layer * kLayerTensors + which];
  }
  int64_t layer_count() const { return static_cast<int64_t>(layers.size()) / kLayerTensors; }

  void check() const;
  std::optional<Gpt2StepArguments> one_kernel() const;
  at::Tensor by_operators(at::Tensor& of_cache) const;
};

void check_weight(const at::Tensor& cache, const std::string& argument, const at::Tensor& tensor,
                  c10::SymIntArrayRef shape) {
  check_same_type(kStepOp, argument.c_str(), tensor, cache);
  check_shape(kStepOp, argument.c_str(), tensor, shape);
}

// A matrix whose number of rows is free.
void check_table(const at::Tensor& cache, const char* argument, const at::Tensor& tensor,
                 const c10::SymInt& columns) {
  check_floating(kStepOp, argument, tensor);
  WARPFUSE_CHECK(tensor.dim() == 2 && tensor.sym_size(0) > 0, kStepOp, argument,
                 c10::str("shape [at least 1, ", columns, "]"), tensor.sym_sizes());
  check_weight(cache, argument, tensor, {tensor.sym_size(0), columns});
}

/// Reads no data.
void StepInputs::check() const {
  check_floating(kStepOp, "cache", cache);
  WARPFUSE_CHECK(cache.scalar_type() != at::kDouble, kStepOp, "cache",
                 "float32, float16 or bfloat16", cache.scalar_type());
  WARPFUSE_CHECK(cache.dim() == 6 && cache.sym_size(1) == 2, kStepOp, "cache", "[L, 2, B, H, S, D]",
                 cache.sym_sizes());
  const int64_t max = max_head_dim(to_dtype(cache.scalar_type()));
  WARPFUSE_CHECK(cache.sym_size(5) <= max, kStepOp, "cache",
                 c10::str("heads of at most ", max, " elements"), cache.sym_size(5));
  check_dense_rows(kStepOp, "cache", cache);
  const c10::SymInt batch = cache.sym_size(2), width = cache.sym_size(3) * cache.sym_size(5);
  for (const auto& [argument, tensor] : {std::pair("ids", &ids), {"positions", &positions}}) {
    check_tensor(kStepOp, argument, *tensor);
    WARPFUSE_CHECK(tensor->scalar_type() == at::kLong, kStepOp, argument, "int64",
                   tensor->scalar_type());
    const c10::SymInt column[] = {batch, 1};
    WARPFUSE_CHECK(tensor->sym_sizes() == c10::SymIntArrayRef(column), kStepOp, argument,
                   c10::str("[B, 1] with the cache's B = ", batch), tensor->sym_sizes());
    check_same_device(kStepOp, argument, *tensor, cache);
  }
  check_table(cache, "token_embedding", token_embedding, width);
  check_table(cache, "position_embedding", position_embedding, width);
  check_table(cache, "head", head, width);
  check_weight(cache, "norm_weight", norm_weight, {width});
  check_weight(cache, "norm_bias", norm_bias, {width});
  WARPFUSE_CHECK(epsilon >= 0, kStepOp, "eps", "a number not below 0", epsilon);
  activation_named(kStepOp, activation);
  const auto expected = cache.sym_size(0) * static_cast<int64_t>(kLayerTensors);
  WARPFUSE_CHECK(
      expected == static_cast<int64_t>(layers.size()), kStepOp, "layers",
      c10::str(expected, " tensors, ", kLayerTensors + 0, " for each layer of the cache"),
      layers.size());
  for (int64_t layer = 0; layer < layer_count(); ++layer) {
    check_table(cache, c10::str("layers[", layer * kLayerTensors + kInnerWeight, "]").c_str(),
                of_layer(layer, kInnerWeight), width);
    const c10::SymInt inner = of_layer(layer, kInnerWeight).sym_size(0);
    const std::vector<c10::SymInt> shapes[kLayerTensors] = {
        {width}, {width}, {3 * width, width}, {3 * width}, {width, width}, {width},
        {width}, {width}, {inner, width},     {inner},     {width, inner}, {width}};
    for (int64_t i = 0; i < kLayerTensors; ++i) {
      const int64_t index = layer * kLayerTensors + i;
      check_weight(cache, c10::str("layers[", index, "]"), layers[index], shapes[i]);
    }
  }
}

#ifdef WARPFUSE_WITH_CUDA
/// For one kernel; nothing where it does not take them.
std::optional<Gpt2StepArguments> StepInputs::one_kernel() const {
  if (layer_count() > kMaxStepLayers || layers.empty()) {
    return std::nullopt;
  }
  bool fits = std::max({token_embedding.numel(), position_embedding.numel(), head.numel(),
                        cache.size(2) * cache.size(4)}) <= INT32_MAX;
  const auto data_of = [&](const at::Tensor& tensor) {
    fits = fits && tensor.is_contiguous() &&
           reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0;
    return tensor.const_data_ptr();
  };
  const auto narrow = [](int64_t size) { return static_cast<int>(size); };
  Gpt2StepArguments a{};
  a.token_embedding = data_of(token_embedding);
  a.position_embedding = data_of(position_embedding);
  a.norm_weight = data_of(norm_weight);
  a.norm_bias = data_of(norm_bias);
  a.head = data_of(head);
  a.cache = cache.mutable_data_ptr();
  for (int i = 0; i < 5; ++i) {
    a.cache_strides[i] = cache.stride(i);
    fits = fits && cache.stride(i) * cache.element_size() % 16 == 0;
  }
  fits = fits && reinterpret_cast<uintptr_t>(a.cache) % 16 == 0;
  a.dtype = to_dtype(cache.scalar_type());
  a.activation = activation_named(kStepOp, activation);
  a.epsilon = static_cast<float>(epsilon);
  a.scale = static_cast<float>(scale);
  a.rows = narrow(cache.size(2));
  a.layers = narrow(layer_count());
  a.heads = narrow(cache.size(3));
  a.head_dim = narrow(cache.size(5));
  a.width = a.heads * a.head_dim;
  a.inverse_width = 1.0f / static_cast<float>(a.width);
  a.slots = narrow(cache.size(4));
  a.tokens = narrow(token_embedding.size(0));
  a.contexts = narrow(position_embedding.size(0));
  a.outputs = narrow(head.size(0));
  a.inner = narrow(of_layer(0, kInnerWeight).size(0));
  for (int layer = 0; layer < a.layers; ++layer) {
    const auto of = [&](LayerTensor which) { return data_of(of_layer(layer, which)); };
    fits = fits && of_layer(layer, kInnerWeight).size(0) == a.inner;
    a.layer[layer] = {of(kNorm1Weight),
                      of(kNorm1Bias),
                      {of(kQkvWeight), of(kQkvBias)},
                      {of(kProjectionWeight), of(kProjectionBias)},
                      of(kNorm2Weight),
                      of(kNorm2Bias),
                      {of(kInnerWeight), of(kInnerBias)},
                      {of(kOuterWeight), of(kOuterBias)}};
  }
  return fits && fits_gpt2_step_cuda(a) ? std::optional(a) : std::nullopt;
}
#endif

at::Tensor StepInputs::by_operators(at::Tensor& of_cache) const {
  // In the cache's dtype, as the one kernel computes.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const int64_t batch = cache.size(2), heads = cache.size(3), head_dim = cache.size(5);
  const int64_t width = heads * head_dim;
  at::Tensor x =
      at::add(at::embedding(token_embedding, ids), at::embedding(position_embedding, positions));
  for (int64_t layer = 0; layer < layer_count(); ++layer) {
    const auto of = [&](LayerTensor which) -> const at::Tensor& { return of_layer(layer, which); };
    const at::Tensor qkv = norm_linear(x, of(kNorm1Weight), of(kNorm1Bias), of(kQkvWeight),
                                       of(kQkvBias), "layer", epsilon)
                               .view({batch, 1, heads, 3, head_dim});
    const auto part = [&](int64_t i) { return qkv.select(3, i).transpose(1, 2); };  // [B, H, 1, D]
    const at::Tensor mixed =
        cached_attention_softmax(part(0), part(1), part(2), of_cache, layer, positions, scale);
    x = linear_residual(mixed.transpose(1, 2).reshape({batch, 1, width}), of(kProjectionWeight),
                        of(kProjectionBias), x);
    const at::Tensor inner = norm_linear(x, of(kNorm2Weight), of(kNorm2Bias), of(kInnerWeight),
                                         of(kInnerBias), "layer", epsilon, activation);
    x = linear_residual(inner, of(kOuterWeight), of(kOuterBias), x);
  }
  return linear_argmax(x.squeeze(1), head, std::nullopt, norm_weight, norm_bias, "layer", epsilon);
}

struct Gpt2Step {
  static constexpr const char* kName = kStepOp;

  template <typename Backend>
  static at::Tensor run(const at::Tensor& ids, const at::Tensor& positions, at::Tensor& cache,
                        const at::Tensor& token_embedding, const at::Tensor& position_embedding,
                        at::TensorList layers, const at::Tensor& norm_weight,
                        const at::Tensor& norm_bias, const at::Tensor& head, double scale,
                        double eps, c10::string_view activation) {
    const StepInputs inputs{
        ids,  positions, cache, token_embedding, position_embedding, layers, norm_weight, norm_bias,
        head, scale,     eps,   activation};
    inputs.check();
    at::Tensor next = Backend::empty({cache.sym_size(2)}, ids.options());
    if (!Backend::computes(next)) {
      return next;
    }
    check_writable(kName, "cache", cache);
#ifdef WARPFUSE_WITH_CUDA
    if constexpr (Backend::kKey == c10::DispatchKey::CUDA) {
      const c10::cuda::CUDAGuard guard(cache.device());  // which GPU the kernel must fit
      if (std::optional<Gpt2StepArguments> arguments = inputs.one_kernel()) {
        const at::Tensor dense_ids = ids.contiguous(), dense_positions = positions.contiguous();
        arguments->ids = dense_ids.const_data_ptr<int64_t>();
        arguments->positions = dense_positions.const_data_ptr<int64_t>();
        arguments->next = next.mutable_data_ptr<int64_t>();
        begin_writing(cache);
        Backend::launch(next, *arguments);
        return next;
      }
    }
#endif
    return inputs.by_operators(cache);
  }
};

WARPFUSE_OPERATORS(m) { register_operator<Gpt2Step>(m); }

// For inference: differentiation is an error.
WARPFUSE_LIBRARY_IMPL(Autograd, m) {
  m.impl(kStepOp, torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace warpfuse
