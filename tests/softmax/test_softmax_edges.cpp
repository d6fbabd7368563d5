// What softmax and log_softmax give at the edges, compared with the linked ATen as the test runs:
// finite, NaN, infinite in the same places. (Exact zeros are the references' business.)

#include <cmath>
#include <map>

#include "support/compare.h"
#include "support/devices.h"
#include "support/errors.h"
#include "support/inputs.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/poison.h"
#include "support/softmax_checks.h"

namespace {

/// 'n' NaN, '+', '-' infinities, 'f' finite values: one letter an element.
std::string classes(const at::Tensor& tensor) {
  const at::Tensor values = tensor.cpu().to(at::kDouble).contiguous();
  std::string letters;
  for (int64_t i = 0; i < values.numel(); ++i) {
    const double value = values.const_data_ptr<double>()[i];
    letters += std::isnan(value) ? 'n' : std::isfinite(value) ? 'f' : value > 0 ? '+' : '-';
  }
  return letters;
}

void check_edge(const SoftmaxOperator& op, const at::Tensor& x, int64_t dim = -1) {
  INFO(op.name << " of " << describe(x) << " over dim " << dim);
  const Poison poison;
  const at::Tensor output = op(x, dim);
  CHECK(classes(output) == classes(op.aten(x, dim, std::nullopt)));
  CHECK(mismatch(output, op.expected(x, dim)) == "");
}

/// The row at each length that ends in another place of a vector, alone, among others, and along
/// the first dimension.
void check_row(const std::vector<double>& row, at::ScalarType dtype, const at::Device& device) {
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    const at::Tensor x = tensor_of(row, dtype, device);
    check_edge(op, x);
    check_edge(op, at::stack({at::zeros_like(x), x, at::ones_like(x)}));
    check_edge(op, at::stack({at::zeros_like(x), x, at::ones_like(x)}, 1), 0);
  }
}

}  // namespace

WARPFUSE_DEVICE_TEST("rows of infinities and NaN", "[softmax]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const size_t columns : {1, 2, 3, 7, 8, 31, 33, 127, 1025, 5000}) {
      const auto row = [&](std::vector<double> head, double rest) {
        head.resize(columns, rest);
        return head;
      };
      check_row(row({}, -kInf), dtype, device);
      check_row(row({}, kInf), dtype, device);
      check_row(row({}, kNaN), dtype, device);
      check_row(row({0.5}, -kInf), dtype, device);
      check_row(row({-kInf}, 0.5), dtype, device);
      check_row(row({kNaN}, -kInf), dtype, device);
      check_row(row({-kInf, kNaN}, -kInf), dtype, device);
      check_row(row({kNaN}, kInf), dtype, device);
      check_row(row({kInf}, -kInf), dtype, device);
    }
  }
}

WARPFUSE_DEVICE_TEST("rows at the ends of a dtype's range", "[softmax]") {
  for (const at::ScalarType dtype : kDtypes) {
    const double largest = finfo_max(dtype);
    for (const size_t columns : {1, 2, 5, 33, 1025}) {
      const auto row = [&](std::vector<double> head, double rest) {
        head.resize(columns, rest);
        return head;
      };
      check_row(row({}, largest), dtype, device);
      check_row(row({}, -largest), dtype, device);
      check_row(row({largest}, -largest), dtype, device);
      check_row(row({-largest}, 0.0), dtype, device);
      check_row(row({-largest}, -kInf), dtype, device);
      check_row(row({0.0, largest}, -kInf), dtype, device);
    }
  }
}

WARPFUSE_DEVICE_TEST("rows around the exponential's overflow, and ties for the maximum",
                     "[softmax]") {
  for (const at::ScalarType dtype : kDtypes) {
    std::vector<double> alternating;
    std::vector<double> ties;
    for (int i = 0; i < 67; ++i) {
      alternating.push_back((i % 2 ? -1 : 1) * (88.0 + i % 3));
      ties.push_back(i % 5 == 0 ? 11.0 : -i);
    }
    check_row(alternating, dtype, device);
    check_row(ties, dtype, device);
    check_row({10000, 10001, 10002, 10003}, dtype == at::kDouble ? at::kDouble : at::kFloat,
              device);
    check_row({-20000, -20000, -20000}, dtype, device);
    check_row({0.0, -0.0, 0.0}, dtype, device);
  }
}

// 2^-24 of an offset of 1e7 is 0.6: only when the maximum is subtracted first nothing is lost.
WARPFUSE_DEVICE_TEST("large offsets lose nothing", "[softmax]") {
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const int64_t columns : {4, 33, 1000, 4097}) {
      const at::Tensor steps = at::randint(0, 9, {5, columns}, at::kDouble);
      const Expected expected = op.expected(steps, -1);
      for (const double offset : {1e4, -1e4, 1e7, -1e7}) {
        for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
          INFO(op.name << " of " << columns << " columns plus " << offset);
          const at::Tensor x = (steps + offset).to(dtype).to(device);
          CHECK(mismatch(op(x, -1), expected) == "");
          CHECK(mismatch(op(x.t(), 0).t(), expected) == "");
        }
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("one planted value changes its own row alone", "[softmax]") {
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const at::ScalarType dtype : {at::kFloat, at::kHalf}) {
      for (const int64_t columns : {3, 17, 33, 127, 1030, 4100}) {
        const std::vector<int64_t> places{0, columns / 2, columns - 2, columns - 1};
        const at::Tensor x = random_tensor({5, columns}, dtype, device);
        check_planted(op, x, places, [&] { return op(x, -1); });
        check_planted(op, x, places, [&] { return op(x.t().contiguous(), 0).t(); });
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("empty tensors", "[softmax]") {
  const std::map<std::string, std::vector<int64_t>> shapes = {
      {"no rows", {0, 3}}, {"no columns", {3, 0}}, {"nothing", {0}}, {"a middle", {2, 0, 4}}};
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const at::ScalarType dtype : kDtypes) {
      for (const auto& [name, shape] : shapes) {
        const at::Tensor x = at::empty(shape, at::TensorOptions(device).dtype(dtype));
        for (int64_t dim = -x.dim(); dim < x.dim(); ++dim) {
          INFO(op.name << ", " << name << ", dim " << dim);
          const at::Tensor output = op(x, dim);
          CHECK(output.sizes() == x.sizes());
          CHECK(output.scalar_type() == dtype);
        }
        // An empty tensor does not excuse a wrong dim: the words are ATen's.
        const std::string complaint = error_of([&] { op(x, x.dim()); });
        CHECK(complaint == error_of([&] { op.aten(x, x.dim(), std::nullopt); }));
        CHECK(complaint.rfind("IndexError: Dimension out of range", 0) == 0);
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("infinities and NaN in a 0-dim tensor", "[softmax]") {
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const double value : {1.5, kInf, -kInf, kNaN}) {
      const at::Tensor x = at::scalar_tensor(value, at::TensorOptions(device).dtype(at::kFloat));
      check_edge(op, x, 0);
      check_edge(op, x, -1);
      CHECK(op(x, 0).dim() == 0);
    }
  }
}
