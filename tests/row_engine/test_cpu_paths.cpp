// The ways of the CPU's kernels over memory, each aimed at by shape and proved by a counter.

#include <warpfuse/info.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "support/compare.h"
#include "support/dropout.h"
#include "support/inputs.h"
#include "support/masks.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/poison.h"
#include "support/threads.h"

namespace {

at::Tensor softmax_gradient(bool log, const at::Tensor& grad, const at::Tensor& output,
                            int64_t dim) {
  return log ? log_softmax_backward(grad, output, dim) : softmax_backward(grad, output, dim);
}

// Both operators, forward and backward, of each dtype and shape against the reference. Each call
// must move `counter`, unless it is empty.
void sweep(const std::string& counter, const std::vector<std::vector<int64_t>>& shapes,
           int64_t dim) {
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const at::ScalarType dtype : kDtypes) {
      for (const std::vector<int64_t>& shape : shapes) {
        const at::Tensor x = random_with_outliers(shape, dtype);
        const at::Tensor grad = random_tensor(shape, dtype);
        INFO(op.name << " of " << describe(x) << " over dim " << dim);
        const CounterDelta moved(counter);
        const Poison poison;
        const at::Tensor output = op(x, dim);
        CHECK(mismatch(output, op.expected(x, dim)) == "");
        CHECK(mismatch(softmax_gradient(op.log, grad, output, dim),
                       expected_softmax_backward(grad, output, dim, op.log)) == "");
        CHECK(moved() == 2);
      }
    }
  }
}

at::Tensor with_threads(int count, const std::function<at::Tensor()>& call) {
  const Threads threads(count);
  return call();
}

}  // namespace

TEST_CASE("rows longer than a cache, in parts", "[softmax][cpu_paths]") {
  sweep("cpu.parts", {{1, 262145}, {2, 280001}, {1, 327680}, {1, 600000}}, -1);
}

TEST_CASE("rows just short enough for a cache", "[softmax][cpu_paths]") {
  const Threads threads(3);              // more would cut the rows into parts
  sweep("cpu.rows", {{3, 131071}}, -1);  // for the smallest that is assumed
}

TEST_CASE("exponentials wait in the result of a long row", "[softmax][cpu_paths]") {
  // Short rows, whole packs, and what is left behind them.
  sweep("cpu.rows", {{3, 511}, {3, 512}, {3, 513}, {2, 1024}, {3, 1039}, {2, 4099}}, -1);
}

TEST_CASE("blocks of short rows are transposed", "[softmax][cpu_paths]") {
  // Whole blocks, whole vectors and what is left.
  for (const int64_t rows : {1, 7, 33, 128, 300}) {
    sweep("cpu.transposed", {{rows, 1}, {rows, 2}, {rows, 3}}, -1);
  }
  for (const at::ScalarType dtype : kDtypes) {
    const int64_t vector = 32 / static_cast<int64_t>(at::elementSize(dtype));
    for (const int64_t columns : {vector / 2, vector - 1, vector}) {
      const at::Tensor x = random_tensor({300, columns}, dtype);
      INFO(describe(x));
      const CounterDelta moved("cpu.transposed");
      CHECK(mismatch(warpfuse::softmax(x, -1), expected_softmax(x, -1)) == "");
      CHECK(mismatch(softmax_backward(x, x, -1), expected_softmax_backward(x, x, -1, false)) == "");
      CHECK(moved() == (columns < vector ? 2 : 0));
    }
  }
}

TEST_CASE("a short row with NaN or infinities leaves its neighbours alone",
          "[softmax][cpu_paths]") {
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const at::ScalarType dtype : kDtypes) {
      at::Tensor x = random_tensor({300, 3}, dtype);
      x.select(0, 4).fill_(kNaN);
      x.select(0, 130).select(0, 1).fill_(kInf);
      x.select(0, 131).select(0, 1).fill_(-kInf);
      x.select(0, 299).fill_(-kInf);
      INFO(op.name << ", " << c10::toString(dtype));
      CHECK(mismatch(op(x, -1), op.expected(x, -1)) == "");
    }
  }
}

TEST_CASE("rows of few vectors stay in registers in the backward", "[softmax][cpu_paths]") {
  const std::string capability =
      nlohmann::json::parse(warpfuse::device_info())["cpu_capability"].get<std::string>();
  const int64_t vector = capability == "avx512" ? 64 : capability == "avx2" ? 32 : 0;
  for (const at::ScalarType dtype : kDtypes) {
    const auto size = static_cast<int64_t>(at::elementSize(dtype));
    for (const int64_t bytes : {24, 32, 56, 64, 72, 128, 136, 200, 256, 264, 312, 512, 520}) {
      for (const int64_t rows : {1, 40}) {
        const at::Tensor g = random_tensor({rows, bytes / size}, dtype);
        const at::Tensor y = random_tensor({rows, bytes / size}, dtype);
        INFO(describe(y));
        const CounterDelta moved("cpu.in_registers");
        for (const bool log : {false, true}) {
          const Poison poison;
          const at::Tensor got = softmax_gradient(log, g, y, -1);
          CHECK(mismatch(got, expected_softmax_backward(g, y, -1, log)) == "");
          // Neighbours with NaN leave a row alone.
          const auto with_nan = [](const at::Tensor& t) { return t.clone().index_put_({0}, kNaN); };
          CHECK(bit_mismatch(softmax_gradient(log, with_nan(g), with_nan(y), -1).slice(0, 1),
                             got.slice(0, 1)) == "");
        }
        const bool fits = dtype != at::kDouble && bytes >= 32 && bytes <= 8 * vector;
        CHECK(moved() == (fits ? 4 : 0));
      }
    }
  }
}

TEST_CASE("fewer rows than threads are cut into parts", "[softmax][cpu_paths]") {
  const at::Tensor x = random_tensor({1, 65536}, at::kFloat);
  const CounterDelta parts("cpu.parts");
  const at::Tensor shared = with_threads(2, [&] { return warpfuse::softmax(x, -1); });
  CHECK(parts() == 1);
  const at::Tensor alone = with_threads(1, [&] { return warpfuse::softmax(x, -1); });
  CHECK(parts() == 1);
  CHECK(mismatch(shared, expected_softmax(x, -1)) == "");
  CHECK(mismatch(alone, expected_softmax(x, -1)) == "");
}

TEST_CASE("NaN and infinities in rows that are cut into parts", "[softmax][cpu_paths]") {
  constexpr int64_t kColumns = 270000;
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const at::ScalarType dtype : kDtypes) {
      const auto check = [&](const std::function<void(at::Tensor&)>& change) {
        at::Tensor x = random_tensor({2, kColumns}, dtype);
        at::Tensor row = x.select(0, 1);
        change(row);
        const CounterDelta moved("cpu.parts");
        const at::Tensor output = op(x, -1);
        CHECK(moved() == 1);
        CHECK(mismatch(output, op.expected(x, -1)) == "");
        // ATen's own sum of such a row is off by up to 4e-5 in float32.
        const at::Tensor aten = op.aten(x.to(at::kDouble), -1, std::nullopt).to(dtype);
        CHECK(aten_mismatch(output, aten, op.log ? 0.1 : 0.0) == "");
      };
      INFO(op.name << ", " << c10::toString(dtype));
      check([](at::Tensor& row) { row.select(0, 77777).fill_(kNaN); });
      check([](at::Tensor& row) { row.select(0, 5).fill_(kInf); });
      check([](at::Tensor& row) { row.fill_(-kInf); });
      // A part that is hidden altogether, and one with NaN among -inf.
      check([](at::Tensor& row) { row.narrow(0, 8192, 8192).fill_(-kInf); });
      check([](at::Tensor& row) {
        row.narrow(0, 8192, 8192).fill_(-kInf);
        row.select(0, 9000).fill_(kNaN);
      });
    }
  }
}

TEST_CASE("a dimension that is not the last, in every width", "[softmax][cpu_paths]") {
  // Groups of four vectors, single ones and what is left, for rows that fit a cache and longer
  // ones.
  sweep("cpu.column", {{2, 7, 300}, {3, 5, 129}, {2, 65, 64}, {2, 9, 31}, {5, 40, 1, 3}}, 1);
  sweep("cpu.column", {{1, 4100, 70}, {2, 2500, 33}, {1, 9000, 5}}, 1);
  sweep("cpu.column", {{50, 257}, {3, 2, 2}}, 0);
}

TEST_CASE("masks whose keys do not lie side by side", "[masked][cpu_paths]") {
  constexpr int64_t kQueries = 9;
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t keys : {5, 16, 37, 200}) {
      const at::Tensor scores = random_tensor({2, 3, kQueries, keys}, dtype);
      const at::Tensor grad = random_tensor({2, 3, kQueries, keys}, dtype);
      const at::Tensor boolean = random_bool({keys, kQueries}, at::kCPU).t();
      const at::Tensor one_column = random_bool({kQueries, 1}, at::kCPU);
      const std::vector<MaskArguments> strided = {
          {.attn_mask = boolean},
          {.attn_mask = boolean, .masked_value = -2.0},
          {.attn_mask = boolean, .causal = "lower_right", .window = 6},
          {.attn_mask = one_column},
          {.attn_mask = random_additive({keys, kQueries}, dtype, at::kCPU).t()},
          {.attn_mask = random_additive({keys, kQueries}, at::kFloat, at::kCPU).t(),
           .causal = "upper_left"},
          {.attn_mask = random_additive({kQueries, 1}, at::kFloat, at::kCPU)},
      };
      for (const MaskArguments& arguments : strided) {
        INFO(describe(arguments) << ", " << c10::toString(dtype) << ", " << keys << " keys");
        MaskArguments contiguous = arguments;
        contiguous.attn_mask = arguments.attn_mask->expand({kQueries, keys}).contiguous();
        const CounterDelta by_stride("mask.strided");
        const CounterDelta in_place("mask.contiguous");
        const Poison poison;
        const at::Tensor output = masked_softmax(scores, arguments);
        const at::Tensor gradient = masked_softmax_backward(grad, output, arguments);
        CHECK(by_stride() == 2);
        CHECK(in_place() == 0);
        CHECK(bit_mismatch(output, masked_softmax(scores, contiguous)) == "");
        CHECK(bit_mismatch(gradient, masked_softmax_backward(grad, output, contiguous)) == "");
        CHECK(in_place() == 2);
        CHECK(mismatch(output, expected_masked_softmax(scores, arguments)) == "");
      }
    }
  }
}

TEST_CASE("work is shared by the threads, and no result depends on it", "[threads][cpu_paths]") {
  struct Case {
    const char* name;
    std::function<at::Tensor()> call;
  };
  const at::Tensor x = random_tensor({2, 3, 100, 130}, at::kFloat);
  const MaskArguments causal{.scale = 0.3, .causal = "upper_left"};
  const auto dropped = [rng = rng_of(1, 2, at::kCPU)](const at::Tensor& rows) {
    return std::get<0>(dropout_softmax(rows, {.softmax_first = true}, rng));
  };
  for (const auto& [name, call] : std::vector<Case>{
           {"rows", [&] { return warpfuse::softmax(x, -1); }},
           {"columns", [&] { return warpfuse::log_softmax(x, 1); }},
           {"short rows", [&] { return warpfuse::softmax(x.view({-1, 3}), -1); }},
           {"short rows, backward",
            [&] { return softmax_backward(x.view({-1, 3}), x.view({-1, 3}), -1); }},
           {"short rows with dropout", [&] { return dropped(x.view({-1, 3})); }},
           {"rows, backward", [&] { return softmax_backward(x, x, -1); }},
           {"columns, backward", [&] { return log_softmax_backward(x, x, 2); }},
           {"causal rows", [&] { return masked_softmax(x, causal); }},
           {"causal rows, backward", [&] { return masked_softmax_backward(x, x, causal); }},
           {"short causal rows", [&] { return masked_softmax(x.view({2, -1, 3, 13}), causal); }},
       }) {
    INFO(name);
    const CounterDelta pieces("parallel.pieces");
    const at::Tensor alone = with_threads(1, call);
    CHECK(pieces() == 1);
    const at::Tensor shared = with_threads(3, call);
    CHECK(pieces() == 4);
    CHECK(bit_mismatch(alone, shared) == "");
  }
  const CounterDelta pieces("parallel.pieces");
  with_threads(3, [&] { return warpfuse::softmax(x.narrow(2, 0, 1), -1); });
  CHECK(pieces() == 1);  // too little to share
}
