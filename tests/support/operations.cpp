#include "operations.h"

#include "compare.h"
#include "dropout.h"
#include "inputs.h"
#include "logprob_checks.h"
#include "masks.h"
#include "operators.h"
#include "row_engine.h"

std::vector<Operation> operations(const at::Tensor& x) {
  const at::Device device = x.device();
  const at::ScalarType dtype = x.scalar_type();
  const at::Tensor grad = random_tensor(x.sizes(), dtype, device);
  const int64_t keys = x.size(-1);
  std::vector<Operation> all;
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const std::string& algorithm : algorithms_on(device)) {
      if (!device.is_cuda() || algorithm == "naive" || plan_by_name(algorithm, x)) {
        all.push_back(
            {c10::str("_softmax_algorithm ", algorithm, op.log ? " log" : ""),
             [=](const at::Tensor& x) { return softmax_algorithm(x, -1, algorithm, op.log); }});
      }
    }
    for (const int64_t dim : {0, 1, -1}) {
      all.push_back({op.name, [=](const at::Tensor& x) { return op(x, dim); }});
      all.push_back({c10::str("_", op.name, "_backward"), [=](const at::Tensor& x) {
                       return op.log ? log_softmax_backward(grad, x, dim)
                                     : softmax_backward(grad, x, dim);
                     }});
    }
  }
  const at::Tensor mask = random_bool({x.size(-2), keys}, device);
  mask.select(0, 0).fill_(false);
  const at::Tensor rng = rng_of(3, 8, device);
  const auto flat = [](const DropoutResult& parts) {  // output, statistics, seed and offset
    const auto& [output, statistics, used] = parts;
    return at::cat({output.to(at::kDouble).view(-1), statistics.to(at::kDouble).view(-1),
                    used.to(at::kDouble)});
  };
  for (const MaskArguments& a : std::vector<MaskArguments>{
           {},
           {.attn_mask = mask},
           {.attn_mask = mask, .masked_value = -3.0},
           {.attn_mask = random_additive({keys}, dtype, device), .causal = "upper_left"},
           {.causal = "lower_right", .window = 2},
           {.key_lengths = at::tensor({0, 3}, at::kLong).to(device)}}) {
    all.push_back({c10::str("scaled_masked_softmax ", describe(a)),
                   [=](const at::Tensor& x) { return masked_softmax(x, a); }});
    all.push_back(
        {c10::str("_scaled_masked_softmax_backward ", describe(a)), [=](const at::Tensor& x) {
           return masked_softmax_backward(grad, masked_softmax(x, a), a);
         }});
    const at::Tensor statistics = std::get<1>(masked_dropout(x, a, 0.3, rng));
    all.push_back({c10::str("_scaled_masked_softmax_dropout ", describe(a)),
                   [=](const at::Tensor& x) { return flat(masked_dropout(x, a, 0.3, rng)); }});
    all.push_back({c10::str("_scaled_masked_softmax_dropout_backward ", describe(a)),
                   [=](const at::Tensor& x) {
                     return masked_dropout_backward(grad, x, statistics, rng, a, 0.3);
                   }});
  }
  for (const bool softmax_first : {false, true}) {
    for (const int64_t dim : {0, 1, -1}) {
      const DropoutCall call{.dim = dim, .p = 0.3, .softmax_first = softmax_first};
      const at::Tensor statistics = std::get<1>(dropout_softmax(x, call, rng));
      all.push_back({describe(call),
                     [=](const at::Tensor& x) { return flat(dropout_softmax(x, call, rng)); }});
      all.push_back({describe(call) + " backward", [=](const at::Tensor& x) {
                       return dropout_softmax_backward(grad, x, statistics, rng, call);
                     }});
    }
  }
  all.push_back({"_dropout_mask", [=](const at::Tensor& x) { return dropout_mask(x, 0.3, rng); }});
  const at::Tensor targets = random_targets(x.sizes().slice(0, 3), keys, device);
  targets.view(-1)[3].fill_(-100);
  for (const std::string& form : kLogprobForms) {
    const LogprobArguments a{.temperature = 0.8, .form = form};
    const LogprobResults kept = logprob_with_statistics(x, targets, a);
    const LogprobGradients gradients = random_gradients(kept, form);
    all.push_back({c10::str("_fused_logprob ", form), [=](const at::Tensor& x) {
                     const LogprobResults results = logprob_with_statistics(x, targets, a);
                     return at::cat({results.logprob.view(-1), results.lse.view(-1),
                                     results.entropy.view(-1), results.statistics.view(-1)});
                   }});
    all.push_back({c10::str("fused_logprob ", form),
                   [=](const at::Tensor& x) { return logprob(x, targets, a)[0]; }});
    all.push_back({c10::str("_fused_logprob_backward ", form), [=](const at::Tensor& x) {
                     return logprob_backward(x, targets, kept, gradients, a);
                   }});
  }
  return all;
}
