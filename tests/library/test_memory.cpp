// Every operator writes each element of its result, and nothing else.

#include "support/compare.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/operations.h"
#include "support/pch.h"
#include "support/poison.h"

WARPFUSE_DEVICE_TEST("every element is written, whatever the memory held", "[memory]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t keys : {1, 3, 8, 31, 33, 130, 1030, 5000}) {
      const at::Tensor x = random_tensor({2, 2, 3, keys}, dtype, device);
      for (const Operation& operation : operations(x)) {
        INFO(operation.name << ", " << c10::toString(dtype) << ", " << keys << " columns");
        at::Tensor over_nan;
        at::Tensor over_values;
        {
          const Poison poison(0xff);
          over_nan = operation.run(x);
        }
        {
          const Poison poison(0x42);
          over_values = operation.run(x);
        }
        CHECK(bit_mismatch(over_nan, over_values) == "");
        CHECK_FALSE(at::isnan(over_nan).any().item<bool>());
      }
    }
  }
}

TEST_CASE("nothing is written beside the result", "[memory]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t keys : {1, 3, 7, 8, 9, 15, 17, 31, 33, 63, 65, 127, 130, 1030}) {
      const Poison poison;  // the inputs lie between guard zones too
      const at::Tensor x = random_tensor({2, 2, 3, keys}, dtype);
      for (const Operation& operation : operations(x)) {
        INFO(operation.name << ", " << c10::toString(dtype) << ", " << keys << " columns");
        operation.run(x);
        CHECK(take_damaged_guard_zones() == 0);
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
      const at::Tensor x = random_tensor({2, 2, 3, keys}, dtype, device);
      for (const Operation& operation : operations(x)) {
        const int64_t bytes = operation.run(x).nbytes();
        const int64_t block = (bytes + 511) / 512 * 512;
        const auto options = at::TensorOptions(device).dtype(at::kByte);
        void* address = nullptr;
        {
          const at::Tensor memory = at::full({block}, 0xa5, options);
          address = memory.mutable_data_ptr();
        }
        at::Tensor output = operation.run(x);
        if (output.mutable_data_ptr() != address) {
          continue;  // the operator took a block for something else first
        }
        const at::Tensor rest =
            at::from_blob(static_cast<uint8_t*>(address) + bytes, {block - bytes}, options);
        INFO(operation.name << ", " << c10::toString(dtype) << ", " << keys << " columns");
        CHECK(rest.eq(0xa5).all().item<bool>());
        ++checked;
      }
    }
  }
  CHECK(checked > 100);
}
