// softmax and log_softmax of tensors that are not contiguous or not aligned, and memory around
// them.

#include "support/compare.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/poison.h"
#include "support/row_engine.h"

namespace {

struct Layout {
  const char* name;
  at::Tensor tensor;
};

std::vector<Layout> layouts(at::ScalarType dtype, const at::Device& device) {
  const at::Tensor matrix = random_tensor({37, 66}, dtype, device);
  const at::Tensor image = random_tensor({2, 6, 5, 8}, dtype, device);
  return {
      {"transposed", matrix.t()},
      {"columns sliced", matrix.slice(1, 3, 60)},
      {"rows sliced", matrix.slice(0, 5, 30)},
      {"every second column", matrix.slice(1, 1, 66, 2)},
      {"every second row", matrix.slice(0, 0, 37, 2)},
      {"a row expanded", matrix.narrow(0, 3, 1).expand({9, 66})},
      {"a column expanded", matrix.narrow(1, 3, 1).expand({37, 12})},
      {"one element expanded", matrix.narrow(0, 0, 1).narrow(1, 0, 1).expand({4, 7})},
      {"channels last", image.contiguous(at::MemoryFormat::ChannelsLast)},
      {"permuted", image.permute({2, 0, 3, 1})},
      {"heads split and transposed",
       random_tensor({2, 9, 24}, dtype, device).view({2, 9, 3, 8}).transpose(1, 2)},
      {"a diagonal", matrix.as_strided({30, 33}, {67, 1})},
      {"overlapping windows", matrix.as_strided({40, 16}, {3, 1}, 5)},
      {"dims of size one with odd strides", matrix.as_strided({1, 33, 1}, {999, 2, 777}, 1)},
  };
}

}  // namespace

WARPFUSE_DEVICE_TEST("strides change no bit of the result, but of rows by units", "[softmax]") {
  // The tier chunk reads rows that lie apart; here it takes the copies with which they are
  // compared. By units it adds up in another order.
  std::optional<TuningInUse> chunks;
  if (device.is_cuda()) {
    chunks.emplace(tuning_with("chunk 64 40 1 0"));
  }
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const at::ScalarType dtype : kDtypes) {
      for (const Layout& layout : layouts(dtype, device)) {
        const at::Tensor& x = layout.tensor;
        for (int64_t dim = 0; dim < x.dim(); ++dim) {
          INFO(op.name << ", " << layout.name << ", " << describe(x) << ", dim " << dim);
          const Poison poison;
          std::optional<CounterDelta> by_units;  // on a GPU alone
          if (device.is_cuda()) {
            by_units.emplace("chunk.units");
          }
          const at::Tensor output = op(x, dim);
          const bool same_order = !by_units || (*by_units)() == 0;
          CHECK(output.is_contiguous());
          CHECK(mismatch(output, op.expected(x, dim)) == "");
          if (same_order) {
            CHECK(bit_mismatch(output, op(x.contiguous(), dim)) == "");
          }
        }
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("storage offsets that break alignment", "[softmax]") {
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const at::ScalarType dtype : kDtypes) {
      for (const int64_t columns : {1, 31, 64, 127, 1024, 5000}) {
        const at::Tensor memory = random_tensor({3 * columns + 16}, dtype, device);
        for (int64_t offset = 0; offset < 16; ++offset) {
          const at::Tensor x = memory.narrow(0, offset, 3 * columns).view({3, columns});
          INFO(op.name << " of " << describe(x) << " at offset " << offset);
          const Poison poison;
          CHECK(mismatch(op(x, -1), op.expected(x, -1)) == "");
          CHECK(mismatch(op(x, 0), op.expected(x, 0)) == "");
        }
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("rows at a stride, each at another alignment", "[softmax]") {
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const at::ScalarType dtype : kDtypes) {
      const at::Tensor x = random_tensor({17, 301}, dtype, device).slice(1, 1, 258);
      INFO(op.name << " of " << describe(x));
      CHECK(mismatch(op(x, -1), op.expected(x, -1)) == "");
    }
  }
}

WARPFUSE_DEVICE_TEST("a row between NaN rows reads nothing of them", "[softmax]") {
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const at::ScalarType dtype : kDtypes) {
      for (const int64_t columns : {1, 2, 9, 17, 31, 33, 127, 587, 1017, 1025, 4097, 50257}) {
        const at::Tensor memory =
            at::full({5 * columns}, kNaN, at::TensorOptions(device).dtype(dtype));
        const at::Tensor x = memory.narrow(0, columns, 3 * columns).view({3, columns});
        x.copy_(random_tensor({3, columns}, dtype, device));
        INFO(op.name << " of " << describe(x));
        CHECK(mismatch(op(x, -1), op.expected(x, -1)) == "");
        CHECK(mismatch(op(x, 0), op.expected(x, 0)) == "");
        // Each row between NaN rows, by a stride.
        memory.view({5, columns}).select(0, 2).fill_(kNaN);
        const at::Tensor apart = memory.view({5, columns}).slice(0, 1, 4, 2);
        CHECK(mismatch(op(apart, -1), op.expected(apart, -1)) == "");
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("the input is left as it was", "[softmax]") {
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const int64_t dim : {0, 1}) {
      const at::Tensor x = random_tensor({33, 129}, at::kFloat, device);
      const at::Tensor before = x.clone();
      op(x, dim);
      CHECK(bit_mismatch(x, before) == "");
    }
  }
}
