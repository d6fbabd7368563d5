#include "bench/traffic.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <numeric>

#include "bench/dropout.h"
#include "bench/linear_dropout.h"
#include "bench/logprob.h"
#include "bench/rules.h"

namespace warpfuse::host::bench {
namespace {

constexpr int64_t kIndexBytes = sizeof(int64_t);

// Scores that no rule hides by position.
int64_t visible_elements(const Case& c) {
  if (c.mask == Mask::padding) {
    const Scores scores = scores_of(c.shape);
    const std::vector<int64_t> lengths = key_lengths_of(c.shape);
    return scores.heads * scores.queries *
           std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  }
  if (c.mask != Mask::causal && c.mask != Mask::positions) {
    return c.shape.elements();
  }
  const Scores scores = scores_of(c.shape);
  int64_t of_head = 0;
  if (c.mask == Mask::causal) {
    for (int64_t query = 0; query < scores.queries; ++query) {
      of_head += std::min(query + 1, scores.keys);
    }
  } else {
    for (const int64_t position : query_positions_of(c.shape)) {
      of_head += std::min(position + 1, scores.keys);
    }
  }
  return scores.batch * scores.heads * of_head;
}

// What describes the mask to a fused kernel.
int64_t mask_bytes(const Case& c, int64_t element) {
  if (c.mask == Mask::none || c.mask == Mask::causal) {
    return 0;
  }
  const Scores scores = scores_of(c.shape);
  switch (c.mask) {
    case Mask::padding:
      return scores.batch * kIndexBytes;
    case Mask::positions:
      return scores.batch * scores.queries * kIndexBytes;
    case Mask::boolean:
      return scores.queries * scores.keys;
    default:
      return c.direction == Direction::forward ? scores.queries * scores.keys * element : 0;
  }
}

// What the mask step of ATen's chain moves.
int64_t chain_mask_step(const Case& c, int64_t element) {
  const bool forward = c.direction == Direction::forward;
  if (c.mask == Mask::none || (c.mask == Mask::additive && !forward)) {
    return 0;
  }
  const Scores scores = scores_of(c.shape);
  int64_t mask = 0;
  switch (c.mask) {
    case Mask::additive:
      mask = scores.queries * scores.keys * element;
      break;
    case Mask::padding:
      mask = scores.batch * scores.keys;
      break;
    case Mask::positions:
      mask = scores.batch * scores.queries * scores.keys;
      break;
    default:
      mask = scores.queries * scores.keys;
  }
  return 2 * c.shape.elements() * element + mask;
}

// Of the rows, which softmax_dropout's backward takes instead of an output.
int64_t statistics_bytes(const Case& c) {
  if (c.op != Operator::softmax_dropout || c.direction == Direction::forward) {
    return 0;
  }
  const int64_t number = c.dtype == at::kDouble ? sizeof(double) : sizeof(float);
  return c.shape.elements() / c.shape.columns() * 2 * number;
}

int64_t unfused_bytes(const Case& c, int64_t element) {
  const int64_t pass = c.shape.elements() * element;
  const bool forward = c.direction == Direction::forward;
  if (c.op == Operator::log_softmax) {
    return (forward ? 2 : 3) * pass;
  }
  const int64_t softmax = (forward ? 2 : 6) * pass;
  if (has_dropout(c.op)) {
    return softmax + 2 * pass + c.shape.elements();
  }
  return c.op == Operator::softmax ? softmax : softmax + 2 * pass + chain_mask_step(c, element);
}

}  // namespace

Traffic traffic_of(const Case& c) {
  if (c.op == Operator::fused_logprob) {
    return logprob_traffic(c);
  }
  if (c.op == Operator::linear_dropout_softmax) {
    return linear_dropout_traffic(c);
  }
  const auto element = static_cast<int64_t>(c10::elementSize(c.dtype));
  const int64_t inputs = c.direction == Direction::forward ? 1 : 2;
  const int64_t least = (inputs * visible_elements(c) + c.shape.elements()) * element +
                        mask_bytes(c, element) + statistics_bytes(c);
  return {.least = least, .fused = least, .unfused = unfused_bytes(c, element)};
}

int64_t output_bytes_of(const Case& c) {
  return c.scores().elements() * static_cast<int64_t>(c10::elementSize(c.dtype));
}

int64_t input_bytes_of(const Case& c) {
  if (c.op == Operator::linear_dropout_softmax) {
    return linear_input_bytes(c);
  }
  const bool one = c.direction == Direction::forward || c.op == Operator::fused_logprob;
  const int64_t inputs = one ? 1 : 2;
  return inputs * output_bytes_of(c) +
         mask_bytes(c, static_cast<int64_t>(c10::elementSize(c.dtype)));
}

}  // namespace warpfuse::host::bench
