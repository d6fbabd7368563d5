// The bytes that a row must move, against sums by hand.

#include "bench/rules.h"
#include "bench/traffic.h"
#include "support/catch.h"

using namespace warpfuse::host::bench;

namespace {

constexpr int64_t kFour = 4;  // bytes of a float32, two of a bfloat16
constexpr int64_t kTwo = 2;
constexpr auto kFloat32 = c10::ScalarType::Float;
constexpr auto kBFloat16 = c10::ScalarType::BFloat16;

Case row(Operator op, Direction direction, const char* shape, c10::ScalarType dtype,
         Mask mask = Mask::none) {
  return {op, direction, parse_shape(shape).value(), dtype, mask};
}

Traffic masked(Direction direction, const char* shape, c10::ScalarType dtype, Mask mask) {
  return traffic_of(row(Operator::scaled_masked_softmax, direction, shape, dtype, mask));
}

}  // namespace

TEST_CASE("softmax reads and writes each element once", "[bench]") {
  const Traffic forward =
      traffic_of(row(Operator::softmax, Direction::forward, "1024x8192", kFloat32));
  CHECK(forward.least == kFour * 2 * 1024 * 8192);
  CHECK(forward.fused == forward.least);
  CHECK(forward.unfused == forward.least);
  const Traffic backward =
      traffic_of(row(Operator::softmax, Direction::backward, "10x7@0", kBFloat16));
  CHECK(backward.least == kTwo * 3 * 70);
  CHECK(backward.unfused == kTwo * 6 * 70);
  CHECK(traffic_of(row(Operator::log_softmax, Direction::backward, "10x7", kBFloat16)).unfused ==
        kTwo * 3 * 70);
}

TEST_CASE("causal rows do not read above the diagonal", "[bench]") {
  // 3 heads, 4 queries, 6 keys: 1 + 2 + 3 + 4 = 10 of 24 scores a head.
  const Traffic forward = masked(Direction::forward, "3x4x6", kFloat32, Mask::causal);
  CHECK(forward.least == kFour * (30 + 72));
  CHECK(forward.unfused == kFour * 6 * 72 + 24);
  const Traffic backward = masked(Direction::backward, "3x4x6", kFloat32, Mask::causal);
  CHECK(backward.least == kFour * (60 + 72));
  CHECK(backward.unfused == kFour * 10 * 72 + 24);
  // More queries than keys: 1 + 2 + 2 of 6.
  CHECK(masked(Direction::forward, "3x2", kFloat32, Mask::causal).least == kFour * (5 + 6));
}

TEST_CASE("padding reads the keys within the lengths", "[bench]") {
  const Shape shape = parse_shape("5x3x4x100").value();
  const std::vector<int64_t> lengths = key_lengths_of(shape);
  REQUIRE(lengths.size() == 5);
  int64_t keys = 0;
  for (const int64_t length : lengths) {
    CHECK(length >= 1);
    CHECK(length <= 100);
    keys += length;
  }
  CHECK(key_lengths_of(shape) == lengths);
  CHECK(keys < 500);  // some key is hidden
  const Traffic traffic = masked(Direction::forward, "5x3x4x100", kBFloat16, Mask::padding);
  CHECK(traffic.least == kTwo * (12 * keys + 6000) + 40);
  CHECK(traffic.unfused == kTwo * 6 * 6000 + 500);
}

TEST_CASE("mask tensors are read once", "[bench]") {
  CHECK(masked(Direction::forward, "3x4x6", kBFloat16, Mask::boolean).least == kTwo * 2 * 72 + 24);
  CHECK(masked(Direction::backward, "3x4x6", kBFloat16, Mask::boolean).least == kTwo * 3 * 72 + 24);
  CHECK(masked(Direction::forward, "3x4x6", kBFloat16, Mask::additive).least == kTwo * 2 * 72 + 48);
  CHECK(masked(Direction::forward, "3x4x6", kBFloat16, Mask::additive).unfused ==
        kTwo * 6 * 72 + 48);
  // The gradient of the scores does not depend on an additive mask.
  CHECK(masked(Direction::backward, "3x4x6", kBFloat16, Mask::additive).least == kTwo * 3 * 72);
  CHECK(masked(Direction::backward, "3x4x6", kBFloat16, Mask::additive).unfused == kTwo * 8 * 72);
  CHECK(masked(Direction::forward, "3x4x6", kFloat32, Mask::none).unfused == kFour * 4 * 72);
}

TEST_CASE("positions are those of the last queries", "[bench]") {
  CHECK(query_positions_of(parse_shape("1x12x1x1024").value()) == std::vector<int64_t>{1023});
  CHECK(query_positions_of(parse_shape("3x5").value()) == std::vector<int64_t>{2, 3, 4});
  CHECK(query_positions_of(parse_shape("3x2").value()) == std::vector<int64_t>{0, 0, 1});
  CHECK(masked(Direction::forward, "1x12x1x1024", c10::ScalarType::Half, Mask::positions).least ==
        kTwo * 2 * 12 * 1024 + 8);
  CHECK(masked(Direction::forward, "2x7x3x5", kFloat32, Mask::positions).least ==
        kFour * (14 * 12 + 210) + 48);
}

TEST_CASE("inputs that a rotation adds up", "[bench]") {
  CHECK(input_bytes_of(row(Operator::softmax, Direction::forward, "3x5", kFloat32)) == 60);
  CHECK(input_bytes_of(row(Operator::softmax, Direction::backward, "3x5", kFloat32)) == 120);
  CHECK(input_bytes_of(row(Operator::scaled_masked_softmax, Direction::forward, "3x5", kFloat32,
                           Mask::boolean)) == 75);
}

TEST_CASE("fused_logprob reads the logits once a pass", "[bench]") {
  constexpr int64_t kRows = 6;
  // 2 x 3 rows of 7; a row has 8 bytes of target, and 4 a result, its gradient or a statistic.
  const auto of = [](Direction direction, c10::ScalarType dtype) {
    return traffic_of(row(Operator::fused_logprob, direction, "2x3x7", dtype));
  };
  CHECK(of(Direction::forward, kBFloat16).least == kTwo * 42 + kRows * (8 + 4));
  CHECK(of(Direction::backward, kBFloat16).least == kTwo * 2 * 42 + kRows * (8 + 4 + 8));
  CHECK(of(Direction::both, kBFloat16).least == kTwo * 3 * 42 + kRows * (8 + 4 + 8 + 4 + 8 + 8));
  CHECK(of(Direction::forward, c10::ScalarType::Double).least == int64_t{8} * 42 + kRows * (8 + 8));
  CHECK(of(Direction::both, kFloat32).unfused ==
        of(Direction::forward, kFloat32).unfused + of(Direction::backward, kFloat32).unfused);
}

TEST_CASE("dropout moves nothing by itself, and a mask where it is a kernel", "[bench]") {
  const auto of = [](Operator op, Direction direction) {
    return traffic_of(row(op, direction, "10x7", kBFloat16));
  };
  for (const Operator op : {Operator::dropout_softmax, Operator::softmax_dropout}) {
    CHECK(of(op, Direction::forward).least == kTwo * 2 * 70);
    CHECK(of(op, Direction::forward).unfused == kTwo * 4 * 70 + 70);
    CHECK(of(op, Direction::backward).unfused == kTwo * 8 * 70 + 70);
  }
  CHECK(of(Operator::dropout_softmax, Direction::backward).least == kTwo * 3 * 70);
  CHECK(of(Operator::softmax_dropout, Direction::backward).least == kTwo * 3 * 70 + kFour * 20);
}

TEST_CASE("a linear reads its operands once a product", "[bench]") {
  // 3 rows of 5 features to 7: operands of 15 and 35, a bias of 7, results of 21.
  const auto of = [](Direction direction) {
    return row(Operator::linear_dropout_softmax, direction, "3x5x7", kBFloat16);
  };
  const Traffic forward = traffic_of(of(Direction::forward));
  CHECK(forward.least == kTwo * (50 + 7 + 21));
  CHECK(forward.fused == kTwo * (50 + 7 + 3 * 21));
  CHECK(forward.unfused == kTwo * (50 + 7 + 5 * 21) + 21);
  const Traffic step = traffic_of(of(Direction::both));
  CHECK(step.least == kTwo * (3 * 50 + 2 * 7 + 3 * 21));
  CHECK(step.fused == kTwo * (3 * 50 + 2 * 7 + 9 * 21));
  CHECK(step.unfused == kTwo * (3 * 50 + 2 * 7 + 16 * 21) + kTwo * 21);
  CHECK(input_bytes_of(of(Direction::forward)) == kTwo * (50 + 7));
  CHECK(input_bytes_of(of(Direction::both)) == kTwo * (50 + 7 + 21));
  CHECK(output_bytes_of(of(Direction::forward)) == kTwo * 21);
}
