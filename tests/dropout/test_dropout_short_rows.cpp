// dropout_softmax and softmax_dropout of short rows on the CPU: blocks of them are transposed, each
// lane of a vector has a row.

#include <cmath>

#include "support/compare.h"
#include "support/dropout.h"
#include "support/dropout_checks.h"
#include "support/inputs.h"
#include "support/pch.h"
#include "support/row_functions.h"

TEST_CASE("blocks of short rows with dropout are transposed", "[dropout][cpu_paths]") {
  for (const DropoutCall& order : kOrders) {
    for (const at::ScalarType dtype : kDtypes) {
      const int64_t in_backward = dtype == at::kFloat ? 7 : 15;
      for (const int64_t columns : {1, 2, 3, 7, 8, 15, 16}) {
        const CounterDelta transposed("cpu.dropout_transposed"), by_row("cpu.dropout_rows");
        check_dropout(random_tensor({195, columns}, dtype), with(order, -1, 0.1));
        CHECK(transposed() == (columns <= 15) + (columns <= in_backward));
        CHECK(by_row() == 2 - transposed());
      }
    }
  }
}

TEST_CASE("any number of short rows with dropout, wherever they start", "[dropout][cpu_paths]") {
  const at::Device host(at::kCPU);
  for (const DropoutCall& order : kOrders) {
    for (const at::ScalarType dtype : kDtypes) {
      for (const int64_t rows : {1, 7, 31, 32, 33, 65, 127, 129, 256}) {
        for (const int64_t columns : {2, 3, 7}) {
          check_dropout(random_at(rows % 4, {rows, columns}, dtype, host), with(order, -1, 0.3));
        }
      }
    }
  }
}

TEST_CASE("short rows that keep all, almost nothing, or nothing", "[dropout][cpu_paths]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t columns : {2, 3, 13}) {
      const at::Tensor x = random_tensor({301, columns}, dtype);
      for (const DropoutCall& order : kOrders) {
        check_dropout(x, with(order, -1, 0.0));
        check_dropout(x, with(order, -1, 1 - std::ldexp(1.0, -17)));
        check_dropout(x, with(order, -1, 1.0));
      }
    }
  }
}

TEST_CASE("short rows drop what _dropout_mask says", "[dropout][cpu_paths]") {
  // A softmax of ones is never 0. Before it, what is kept of a row is more than what is dropped.
  const double p = 0.4;
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t columns : {2, 3, 5, 11, 15}) {
      const at::Tensor ones = at::ones({1001, columns}, dtype);
      const at::Tensor rng = rng_of(3, 1 << 20, at::kCPU);
      const at::Tensor kept = dropout_mask(ones, p, rng);
      INFO(describe(ones));
      CHECK(std::get<0>(dropout_softmax(ones, with(kOrders[1], -1, p), rng)).ne(0).equal(kept));
      const at::Tensor y = std::get<0>(dropout_softmax(ones, with(kOrders[0], -1, p), rng));
      const at::Tensor mixed = kept.any(-1, true).logical_and(kept.all(-1, true).logical_not());
      CHECK(mixed.any().item<bool>());
      CHECK(y.gt(y.amin(-1, true)).equal(kept.logical_and(mixed)));
    }
  }
}

TEST_CASE("a short row with NaN or infinities leaves its neighbours alone under dropout",
          "[dropout][cpu_paths]") {
  const at::Tensor rng = rng_of(5, 12, at::kCPU);
  for (const DropoutCall& order : kOrders) {
    const DropoutCall call = with(order, -1, 0.3);
    for (const at::ScalarType dtype : kDtypes) {
      const at::Tensor clean = random_tensor({300, 3}, dtype);
      const at::Tensor grad = random_tensor({300, 3}, dtype);
      at::Tensor x = clean.clone();
      x.select(0, 4).fill_(kNaN);
      x.select(0, 130).select(0, 1).fill_(kInf);
      x.select(0, 299).fill_(-kInf);
      const at::Tensor untouched = x.eq(clean).all(-1, true);
      const auto results = [&](const at::Tensor& input) {
        const auto [output, statistics, used] = dropout_softmax(input, call, rng);
        return std::vector{
            output, dropout_softmax_backward(grad, call.softmax_first ? input : output, statistics,
                                             rng, call)};
      };
      const auto got = results(x), expected = results(clean);
      for (size_t i = 0; i < got.size(); ++i) {
        INFO(c10::toString(dtype) << ", " << describe(call) << ", result " << i);
        CHECK(bit_mismatch(got[i].masked_select(untouched), expected[i].masked_select(untouched)) ==
              "");
        CHECK(got[i].select(0, 4).isnan().all().item<bool>());
        CHECK(got[i].select(0, 299).isnan().all().item<bool>());
      }
    }
  }
}
