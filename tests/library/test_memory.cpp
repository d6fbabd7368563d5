// Every operator writes each element of its result, and nothing else.

#include <functional>

#include "support/compare.h"
#include "support/devices.h"
#include "support/dropout.h"
#include "support/inputs.h"
#include "support/logprob_checks.h"
#include "support/masks.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/poison.h"
#include "support/row_engine.h"

namespace {

struct Call {
  std::string name;
  std::function<at::Tensor()> run;
};

std::vector<Call> calls(at::IntArrayRef shape, at::ScalarType dtype, const at::Device& device) {
  const at::Tensor x = random_tensor(shape, dtype, device);
  const at::Tensor grad = random_tensor(shape, dtype, device);
  const int64_t keys = shape.back();
  std::vector<Call> result;
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const std::string& algorithm : algorithms_on(device)) {
      if (!device.is_cuda() || algorithm == "naive" || plan_by_name(algorithm, x)) {
        result.push_back({c10::str("_softmax_algorithm ", algorithm, op.log ? " log" : ""),
                          [=] { return softmax_algorithm(x, -1, algorithm, op.log); }});
      }
    }
    for (const int64_t dim : {0, 1, -1}) {
      result.push_back({op.name, [=] { return op(x, dim); }});
      result.push_back({c10::str("_", op.name, "_backward"), [=] {
                          return op.log ? log_softmax_backward(grad, x, dim)
                                        : softmax_backward(grad, x, dim);
                        }});
    }
  }
  const at::Tensor mask = random_bool({x.size(-2), keys}, device);
  mask.select(0, 0).fill_(false);
  const std::vector<MaskArguments> arguments = {
      {},
      {.attn_mask = mask},
      {.attn_mask = mask, .masked_value = -3.0},
      {.attn_mask = random_additive({keys}, dtype, device), .causal = "upper_left"},
      {.causal = "lower_right", .window = 2},
      {.key_lengths = at::tensor({0, 3}, at::kLong).to(device)},
  };
  for (const MaskArguments& a : arguments) {
    result.push_back(
        {c10::str("scaled_masked_softmax ", describe(a)), [=] { return masked_softmax(x, a); }});
    result.push_back({c10::str("_scaled_masked_softmax_backward ", describe(a)),
                      [=] { return masked_softmax_backward(grad, masked_softmax(x, a), a); }});
  }
  const at::Tensor rng = rng_of(3, 8, device);
  const auto flat = [](const DropoutResult& parts) {  // output, statistics, seed and offset
    const auto& [output, statistics, used] = parts;
    return at::cat({output.to(at::kDouble).view(-1), statistics.to(at::kDouble).view(-1),
                    used.to(at::kDouble)});
  };
  for (const bool softmax_first : {false, true}) {
    for (const int64_t dim : {0, -1}) {
      const DropoutCall call{.dim = dim, .p = 0.3, .softmax_first = softmax_first};
      const at::Tensor statistics = std::get<1>(dropout_softmax(x, call, rng));
      result.push_back({describe(call), [=] { return flat(dropout_softmax(x, call, rng)); }});
      result.push_back({describe(call) + " backward",
                        [=] { return dropout_softmax_backward(grad, x, statistics, rng, call); }});
    }
  }
  for (const MaskArguments& a : arguments) {
    const at::Tensor statistics = std::get<1>(masked_dropout(x, a, 0.3, rng));
    result.push_back({c10::str("_scaled_masked_softmax_dropout ", describe(a)),
                      [=] { return flat(masked_dropout(x, a, 0.3, rng)); }});
    result.push_back({c10::str("_scaled_masked_softmax_dropout_backward ", describe(a)),
                      [=] { return masked_dropout_backward(grad, x, statistics, rng, a, 0.3); }});
  }
  result.push_back({"_dropout_mask", [=] { return dropout_mask(x, 0.3, rng); }});
  std::vector<int64_t> leading = shape.vec();
  leading.pop_back();
  const at::Tensor targets = random_targets(leading, keys, device);
  targets.view(-1)[3].fill_(-100);
  for (const std::string& form : kLogprobForms) {
    const LogprobArguments a{.temperature = 0.8, .form = form};
    const LogprobResults kept = logprob_with_statistics(x, targets, a);
    const LogprobGradients gradients = random_gradients(kept, form);
    result.push_back({c10::str("_fused_logprob ", form), [=] {
                        const LogprobResults all = logprob_with_statistics(x, targets, a);
                        return at::cat({all.logprob.view(-1), all.lse.view(-1),
                                        all.entropy.view(-1), all.statistics.view(-1)});
                      }});
    result.push_back({c10::str("fused_logprob ", form), [=] { return logprob(x, targets, a)[0]; }});
    result.push_back({c10::str("_fused_logprob_backward ", form),
                      [=] { return logprob_backward(x, targets, kept, gradients, a); }});
  }
  return result;
}

}  // namespace

WARPFUSE_DEVICE_TEST("every element is written, whatever the memory held", "[memory]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t keys : {1, 3, 8, 31, 33, 130, 1030, 5000}) {
      for (const Call& call : calls({2, 2, 3, keys}, dtype, device)) {
        INFO(call.name << ", " << c10::toString(dtype) << ", " << keys << " columns");
        at::Tensor over_nan;
        at::Tensor over_values;
        {
          const Poison poison(0xff);
          over_nan = call.run();
        }
        {
          const Poison poison(0x42);
          over_values = call.run();
        }
        CHECK(bit_mismatch(over_nan, over_values) == "");
        CHECK_FALSE(at::isnan(over_nan).any().item<bool>());
      }
    }
  }
}

TEST_CASE("nothing is written beside the result", "[memory]") {
  const int64_t before = damaged_guard_zones();
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t keys : {1, 3, 7, 8, 9, 15, 17, 31, 33, 63, 65, 127, 130, 1030}) {
      const Poison poison;  // the inputs lie between guard zones too
      for (const Call& call : calls({2, 2, 3, keys}, dtype, at::kCPU)) {
        call.run();
        INFO(call.name << ", " << c10::toString(dtype) << ", " << keys << " columns");
        REQUIRE(damaged_guard_zones() == before);
      }
    }
  }
}

WARPFUSE_GPU_TEST("nothing is written beside the result, on the GPU", "[memory]") {
  // The allocator hands out blocks of 512 bytes: the result fills its block's head, the rest is
  // memory that a later, larger tensor at the same address shows.
  int checked = 0;
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t keys : {1, 3, 7, 9, 17, 33, 1030}) {
      for (const Call& call : calls({2, 2, 3, keys}, dtype, device)) {
        const int64_t bytes = call.run().nbytes();
        const int64_t block = (bytes + 511) / 512 * 512;
        const auto options = at::TensorOptions(device).dtype(at::kByte);
        void* address = nullptr;
        {
          const at::Tensor memory = at::full({block}, 0xa5, options);
          address = memory.mutable_data_ptr();
        }
        at::Tensor output = call.run();
        if (output.mutable_data_ptr() != address) {
          continue;  // the operator took a block for something else first
        }
        const at::Tensor rest =
            at::from_blob(static_cast<uint8_t*>(address) + bytes, {block - bytes}, options);
        INFO(call.name << ", " << c10::toString(dtype) << ", " << keys << " columns");
        CHECK(rest.eq(0xa5).all().item<bool>());
        ++checked;
      }
    }
  }
  CHECK(checked > 100);
}
