// softmax and log_softmax over long rows and many of them.

#include "support/devices.h"
#include "support/pch.h"
#include "support/softmax_checks.h"

WARPFUSE_DEVICE_TEST("rows of powers of two, and one element more or less", "[softmax][portable]") {
  std::vector<std::vector<int64_t>> shapes;
  for (int64_t columns = 256; columns <= 65536; columns *= 2) {
    for (const int64_t n : {columns - 1, columns, columns + 1}) {
      shapes.push_back({2, n});
    }
  }
  sweep_softmax(device, shapes, 1);
}

WARPFUSE_DEVICE_TEST("rows of vocabularies and other long rows", "[softmax][portable]") {
  sweep_softmax(device, {{3, 50257}, {1, 131072}, {1, 262143}, {33, 1023}, {31, 1025}, {5, 4097}},
                -1);
}

// The sum grows to 1e5: adding one element after the other would lose bits all the way.
WARPFUSE_DEVICE_TEST("long rows of nearly equal values", "[softmax][portable]") {
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const at::ScalarType dtype : kDtypes) {
      check_softmax(op, at::rand({2, 131072}, at::kDouble).to(dtype).to(device), -1);
      check_softmax(op, at::rand({20000, 3}, at::kDouble).to(dtype).to(device), 0);
    }
  }
}

WARPFUSE_DEVICE_TEST("few and many rows", "[softmax][portable]") {
  std::vector<std::vector<int64_t>> shapes;
  for (const int64_t rows : {1, 2, 3, 31, 32, 33, 65535, 65536}) {
    shapes.push_back({rows, 5});
  }
  for (const int64_t rows : {2, 31, 32, 33}) {
    shapes.push_back({rows, 64});
    shapes.push_back({rows, 127});
  }
  sweep_softmax(device, shapes, -1);
}
