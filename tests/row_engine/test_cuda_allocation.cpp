// What a call allocates: its result, where few rows are split over many blocks at most 64 KB more,
// and where rules alone have no kernels a byte that hides no key.

#include <c10/cuda/CUDACachingAllocator.h>

#include "support/devices.h"
#include "support/inputs.h"
#include "support/logprob_checks.h"
#include "support/pch.h"
#include "support/row_functions.h"

namespace {

using warpfuse::Direction;

struct Allocated {
  int64_t bytes;  // at most at once, beside what was there before
  int64_t blocks;
};

/// What `call` asks the allocator for, its result included.
template <typename Call>
Allocated allocated_by(const Call& call, const at::Device& device) {
  namespace Allocator = c10::cuda::CUDACachingAllocator;
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  Allocator::resetPeakStats(device.index());
  const auto before = Allocator::getDeviceStats(device.index());
  call();
  const auto after = Allocator::getDeviceStats(device.index());
  return {after.requested_bytes[kAll].peak - before.requested_bytes[kAll].current,
          after.allocation[kAll].allocated - before.allocation[kAll].allocated};
}

}  // namespace

WARPFUSE_GPU_TEST("a call allocates its result alone", "[allocation][portable]") {
  for (const std::string& run : runs_of_all_tiers()) {
    const TuningInUse tuning(tuning_with(run));
    for (const at::ScalarType dtype : kDtypes) {
      for (const int64_t keys : {1, 64, 1000, 10'001}) {
        for (const RowFunction& function : row_functions(2, 3, keys, dtype, device, Offsets{})) {
          const warpfuse::RowPlan plan = plan_of(function);
          INFO(function.name << " of " << describe(function.rows) << ", " << plan.to_string());
          const int64_t mask = runs_by_mask_tensor(function) ? 1 : 0;  // a block of one byte
          const int64_t least = static_cast<int64_t>(function.rows.nbytes()) + mask;
          const Allocated got = allocated_by(function.run, device);
          if (plan.tier != warpfuse::Tier::stream) {
            CHECK(got.bytes == least);
            CHECK(got.blocks == 1 + mask);
          } else {
            CHECK(got.bytes > least);
            CHECK(got.bytes <= least + static_cast<int64_t>(warpfuse::kSplitBytes));
            CHECK(got.blocks == 2 + mask);
          }
        }
      }
    }
  }
}

WARPFUSE_GPU_TEST("softmax over any dimension allocates its result alone",
                  "[allocation][portable]") {
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor x = random_tensor({5, 300, 33}, dtype, device);
    for (const int64_t dim : {0, 1, 2}) {
      for (const auto& call : std::vector<std::function<at::Tensor()>>{
               [&] { return warpfuse::softmax(x, dim); },
               [&] { return warpfuse::log_softmax(x, dim); },
               [&] { return softmax_backward(x, x, dim); },
               [&] { return log_softmax_backward(x, x, dim); }}) {
        const Allocated got = allocated_by(call, device);
        CHECK(got.bytes == static_cast<int64_t>(x.nbytes()));
        CHECK(got.blocks == 1);
      }
    }
  }
}

WARPFUSE_GPU_TEST("fused_logprob takes 16 bytes a row and at most 64 KB, and in place no gradient",
                  "[allocation][logprob][portable]") {
  constexpr int64_t kConstant = int64_t{64} * 1024;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const auto& [rows, columns] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 128'256}, {300, 50'257}, {5000, 1000}}) {
      const at::Tensor x = random_tensor({rows, columns}, at::kFloat, device).to(dtype);
      const at::Tensor targets = random_targets({rows}, columns, device);
      for (const std::string& form : kLogprobForms) {
        INFO(describe(x) << ", " << form);
        const LogprobArguments a{.form = form};
        const int64_t results = rows * 4 * (form == "logprob" ? 1 : 2);
        CHECK(allocated_by([&] { logprob(x, targets, a); }, device).bytes <= results + kConstant);
        const at::Tensor variable = x.detach().set_requires_grad(true);
        std::vector<at::Tensor> kept;
        CHECK(allocated_by([&] { kept = logprob(variable, targets, a); }, device).bytes <=
              results + 16 * rows + kConstant);
        const at::Tensor ones = at::ones_like(kept[0]);
        CHECK(allocated_by([&] { torch::autograd::grad({kept[0]}, {variable}, {ones}); }, device)
                  .bytes <= static_cast<int64_t>(x.nbytes()) + 16 * rows + kConstant);
        const LogprobResults statistics = logprob_with_statistics(x, targets, a);
        CHECK(allocated_by(
                  [&] { logprob_backward_in_place(x, targets, statistics, {.logprob = ones}, a); },
                  device)
                  .bytes <= 16 * rows + kConstant);
      }
    }
  }
}

WARPFUSE_GPU_TEST("the largest split stays within 64 KB, or one part per row",
                  "[allocation][portable]") {
  const TuningInUse tuning(tuning_with("stream 32 0 1024 0"));
  for (const int64_t rows : {1, 2, 3, 5, 100, 1364, 1365, 1366, 2730, 2731, 5000}) {
    const at::Tensor x = random_at(0, {rows, 2'000'000 / rows}, at::kDouble, device);
    const warpfuse::RowPlan plan = plan_of(Direction::forward, x);
    INFO(describe(x) << ", " << plan.to_string());
    const Allocated got = allocated_by([&] { return warpfuse::softmax(x, -1); }, device);
    const auto partials = static_cast<int64_t>(
        std::max(warpfuse::kSplitBytes, static_cast<size_t>(rows) * warpfuse::kSplitPartBytes));
    CHECK(got.bytes <= static_cast<int64_t>(x.nbytes()) + partials);
    CHECK(got.blocks == 2);
  }
}
