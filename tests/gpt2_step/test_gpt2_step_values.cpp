// gpt2_step against a whole GPT-2 in float64: the keys and values of each layer, and the tokens.

#include "support/autocast.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/poison.h"
#include "support/step_call.h"
#include "support/threads.h"

namespace {

/// A bound of values of the order of 1, through a few layers.
double tolerance(at::ScalarType dtype) {
  return dtype == at::kFloat ? 2e-5 : dtype == at::kHalf ? 0.02 : 0.15;
}

void check_step(StepCall call) {
  INFO(describe(call));
  const ExpectedStep expected = expected_step(call);
  std::optional<Poison> poison;
  if (call.cache.size(2) <=
      16) {  // matmuls of more rows are ATen's, which allocates as Poison cannot
    poison.emplace();
  }
  const at::Tensor next = call.run();
  poison.reset();
  const double allowed = tolerance(call.cache.scalar_type());
  CHECK(next.scalar_type() == at::kLong);
  CHECK(next.sizes() == at::IntArrayRef({call.cache.size(2)}));
  const at::Tensor cache = call.cache.to(at::kCPU, at::kDouble);
  CHECK(cache.isnan().equal(expected.cache.isnan()));
  CHECK((cache - expected.cache).nan_to_num().abs().max().item<double>() < allowed);
  // The token's logit is the largest, or as good as.
  const at::Tensor chosen = expected.logits.gather(1, next.cpu().unsqueeze(1)).squeeze(1);
  CHECK((expected.logits.amax(-1) - chosen).max().item<double>() < 8 * allowed);
}

}  // namespace

WARPFUSE_DEVICE_TEST("a step of a small GPT-2", "[gpt2_step][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const int64_t batch : {1, 2, 3, 4, 5, 17}) {
      check_step(random_step({.batch = batch, .slots = 60}, dtype, device));
    }
    for (const int64_t head_dim : {8, 64, 128, 20}) {
      check_step(random_step({.head_dim = head_dim}, dtype, device));
    }
    for (const int64_t slots : {1, 2, 200, 700}) {
      check_step(random_step({.batch = 1, .slots = slots}, dtype, device));
    }
    for (const int64_t vocabulary : {1, 7, 5003}) {
      check_step(random_step({.vocabulary = vocabulary}, dtype, device));
    }
  }
}

WARPFUSE_DEVICE_TEST("a step at GPT-2's widths", "[gpt2_step][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const int64_t batch : {1, 4}) {
      check_step(random_step({.batch = batch,
                              .heads = 12,
                              .head_dim = 64,
                              .inner = 3072,
                              .vocabulary = 9001,
                              .slots = 150},
                             dtype, device));
    }
  }
}

WARPFUSE_DEVICE_TEST("activations, and inner layers of another width", "[gpt2_step]") {
  for (const std::string activation : {"none", "gelu", "gelu_tanh"}) {
    for (const int64_t inner : {8, 40, 768, 1000}) {
      StepCall call = random_step({.inner = inner}, at::kFloat, device);
      call.activation = activation;
      check_step(call);
    }
  }
}

WARPFUSE_DEVICE_TEST("under autocast a step is computed in the cache's dtype",
                     "[autocast][gpt2_step]") {
  for (const int64_t head_dim : {16, 20}) {  // on a GPU: one kernel, and the operators
    StepCall plain = random_step({.head_dim = head_dim}, at::kFloat, device);
    StepCall cast = plain;
    cast.cache = plain.cache.clone();
    const at::Tensor tokens = plain.run();
    const Autocast autocast(device.type(), at::kBFloat16);
    CHECK(cast.run().equal(tokens));
    CHECK(bit_mismatch(cast.cache, plain.cache) == "");
  }
}

WARPFUSE_DEVICE_TEST("a part of a larger cache", "[gpt2_step]") {
  StepCall call = random_step({.slots = 40}, at::kHalf, device);
  const at::Tensor whole = at::full({2, 2, 5, 2, 90, 16}, 7, call.cache.options());
  const at::Tensor part = whole.narrow(2, 1, 2).narrow(4, 0, 40);
  part.copy_(call.cache);
  call.cache = part;
  check_step(call);
  CHECK(whole.select(2, 0).eq(7).all().item<bool>());
  CHECK(whole.narrow(2, 3, 2).eq(7).all().item<bool>());
  CHECK(whole.narrow(4, 40, 50).eq(7).all().item<bool>());
}

WARPFUSE_DEVICE_TEST("tokens one after another are those of the operators", "[gpt2_step]") {
  // Equal sequences in one kernel and, 12 at a time, by the operators.
  StepCall few = random_step({.batch = 3, .layers = 3, .slots = 64}, at::kFloat, device);
  few.positions.zero_();
  StepCall many = few;
  few.cache = few.cache.clone();
  many.cache = many.cache.repeat({1, 1, 4, 1, 1, 1});
  for (int64_t i = 0; i < 40; ++i) {
    const at::Tensor next = few.run();
    many.ids = few.ids.repeat({4, 1});
    many.positions = few.positions.repeat({4, 1});
    CHECK(many.run().view({4, 3}).eq(next).all().item<bool>());
    few.ids = next.unsqueeze(1);
    few.positions.add_(1);
  }
}

WARPFUSE_DEVICE_TEST("NaN and infinities in weights", "[gpt2_step]") {
  for (const double bad : {kNaN, kInf}) {
    StepCall call = random_step({}, at::kFloat, device);
    call.layers[10].select(0, 3).fill_(bad);
    CHECK(call.run().eq(-1).all().item<bool>());
    call = random_step({}, at::kFloat, device);
    call.token_embedding[call.ids[0][0].item<int64_t>()].fill_(bad);
    call.ids[1].fill_((call.ids[0] + 1).item<int64_t>() % 301);
    const at::Tensor next = call.run();
    CHECK(next[0].item<int64_t>() == -1);
    CHECK(next[1].item<int64_t>() >= 0);
  }
}
