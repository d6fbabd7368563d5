#include "bench/suites/attention_inputs.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>

#include <numeric>
#include <random>

namespace warpfuse::host::bench {
namespace {

constexpr double kHiddenShare = 0.2;  // of a boolean mask
constexpr int64_t kIndexBytes = sizeof(int64_t);

// A set of which keys are hidden by position: with key_lengths, query_positions and hidden.
AttentionSet hidden_by_position(const Case& c, const at::TensorOptions& options) {
  AttentionSet set;
  const Scores scores = scores_of(c.shape);
  const at::TensorOptions index = options.dtype(at::kLong);
  const auto on_device = [&](const std::vector<int64_t>& values) {
    return at::tensor(values, at::kLong).to(options.device());
  };
  const at::Tensor keys = at::arange(scores.keys, index);
  at::Tensor hidden;  // [batch or 1, queries or 1, keys]
  if (c.mask == Mask::causal) {
    hidden = keys.gt(at::arange(scores.queries, index).unsqueeze(1)).unsqueeze(0);
  } else if (c.mask == Mask::padding) {
    set.key_lengths = on_device(key_lengths_of(c.shape));
    hidden = keys.ge(set.key_lengths->view({-1, 1, 1}));
  } else if (c.mask == Mask::positions) {
    const at::Tensor row = on_device(query_positions_of(c.shape));
    set.query_positions = row.expand({scores.batch, scores.queries}).contiguous();
    hidden = keys.gt(set.query_positions->unsqueeze(-1));
  } else {
    return set;
  }
  const size_t rank = c.shape.sizes.size();
  set.hidden = rank == 4 ? hidden.unsqueeze(1) : rank == 2 ? hidden.squeeze(0) : hidden;
  return set;
}

// Scores that are not hidden by position; a key hidden by a mask tensor lies among visible ones and
// is read with them.
int64_t visible_elements(const Case& c) {
  const Scores scores = scores_of(c.shape);
  const auto up_to = [&](int64_t position) { return std::min(position + 1, scores.keys); };
  int64_t of_head = 0;
  switch (c.mask) {
    case Mask::padding: {
      const std::vector<int64_t> lengths = key_lengths_of(c.shape);
      return scores.heads * scores.queries *
             std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
    }
    case Mask::causal:
      for (int64_t query = 0; query < scores.queries; ++query) {
        of_head += up_to(query);
      }
      break;
    case Mask::positions:
      for (const int64_t position : query_positions_of(c.shape)) {
        of_head += up_to(position);
      }
      break;
    default:
      return c.shape.elements();
  }
  return scores.batch * scores.heads * of_head;
}

// The plugin reads 8 bytes per key length or query position, and a mask tensor once, but for an
// additive one in the backward, which has no use for it.
int64_t mask_bytes(const Case& c, int64_t element) {
  const Scores scores = scores_of(c.shape);
  switch (c.mask) {
    case Mask::padding:
      return scores.batch * kIndexBytes;
    case Mask::positions:
      return scores.batch * scores.queries * kIndexBytes;
    case Mask::boolean:
      return scores.queries * scores.keys;
    case Mask::additive:
      return c.is_forward() ? scores.queries * scores.keys * element : 0;
    default:
      return 0;
  }
}

// The mask step of the chain reads and writes all scores, and reads its own mask.
int64_t chain_mask_step(const Case& c, int64_t element) {
  const Scores scores = scores_of(c.shape);
  const int64_t pass = 2 * c.shape.elements() * element;
  switch (c.mask) {
    case Mask::none:
      return 0;
    case Mask::additive:
      return c.is_forward() ? pass + mask_bytes(c, element) : 0;
    case Mask::padding:
      return pass + scores.batch * scores.keys;
    case Mask::positions:
      return pass + scores.batch * scores.queries * scores.keys;
    default:
      return pass + scores.queries * scores.keys;
  }
}

}  // namespace

Scores scores_of(const Shape& shape) {
  const std::vector<int64_t>& sizes = shape.sizes;
  const size_t rank = sizes.size();
  return {.batch = rank > 2 ? sizes[0] : 1,
          .heads = rank > 3 ? sizes[1] : 1,
          .queries = sizes[rank - 2],
          .keys = sizes[rank - 1]};
}

std::vector<int64_t> key_lengths_of(const Shape& shape) {
  const Scores scores = scores_of(shape);
  // The sequence is fixed by the standard (a distribution's is not), and is to be the same always.
  std::mt19937_64 engine(20);  // NOLINT(bugprone-random-generator-seed)
  std::vector<int64_t> lengths(static_cast<size_t>(scores.batch));
  for (int64_t& length : lengths) {
    length = 1 + static_cast<int64_t>(engine() % static_cast<uint64_t>(scores.keys));
  }
  return lengths;
}

std::vector<int64_t> query_positions_of(const Shape& shape) {
  const Scores scores = scores_of(shape);
  std::vector<int64_t> positions;
  positions.reserve(static_cast<size_t>(scores.queries));
  for (int64_t query = 0; query < scores.queries; ++query) {
    positions.push_back(std::max<int64_t>(scores.keys - scores.queries + query, 0));
  }
  return positions;
}

bool is_attention(const Shape& shape) {
  const size_t rank = shape.sizes.size();
  return rank >= 2 && rank <= 4 && shape.dim == -1;
}

const char* causal_of(const Case& c) { return c.mask == Mask::causal ? "upper_left" : "none"; }

void add_attention_masks(std::vector<AttentionSet>& sets, const Case& c,
                         const at::TensorOptions& options) {
  std::ranges::fill(sets, hidden_by_position(c, options));
  const Scores scores = scores_of(c.shape);
  const auto count = static_cast<int64_t>(sets.size());
  if (c.mask == Mask::boolean) {
    add_tensors(sets, &AttentionSet::hidden, {scores.queries, scores.keys},
                options.dtype(at::kBool),
                [](const at::Tensor& hidden) { hidden.bernoulli_(kHiddenShare); });
    for (AttentionSet& set : sets) {
      set.attn_mask = set.hidden.logical_not();
    }
  } else if (c.mask == Mask::additive) {
    const auto masks = make_tensors(count, {scores.queries, scores.keys}, options);
    for (size_t i = 0; i < sets.size(); ++i) {
      sets[i].attn_mask = masks[i].normal_();
    }
  }
}

at::Tensor attention_forward(const Case& c, const AttentionSet& set, const at::Tensor& scores,
                             const Part& part) {
  at::Tensor x = scores * kAttentionScale;
  if (c.mask == Mask::additive && set.attn_mask) {
    x = x + part(*set.attn_mask).to(at::kDouble);
  }
  if (!set.hidden.defined()) {
    return at::softmax(x, -1);
  }
  const at::Tensor hidden = part(set.hidden);
  return at::softmax(x.masked_fill(hidden, -kInfinity), -1).masked_fill(hidden, 0.0);
}

at::Tensor chain_forward(const AttentionSet& in) {
  at::Tensor scores = in.scores.mul(kAttentionScale);
  if (in.hidden.defined()) {
    scores = scores.masked_fill(in.hidden, -kInfinity);
  } else if (in.attn_mask) {
    scores = scores.add(*in.attn_mask);
  }
  return at::softmax(scores, -1);
}

at::Tensor chain_backward(const AttentionSet& in, const at::Tensor& grad_output) {
  at::Tensor grad = at::_softmax_backward_data(grad_output, in.output, -1, in.output.scalar_type());
  if (in.hidden.defined()) {
    grad = grad.masked_fill(in.hidden, 0.0);
  }
  return grad.mul(kAttentionScale);
}

Bytes attention_bytes(const Case& c) {
  const auto element = c.element_bytes();
  const int64_t pass = c.shape.elements() * element;
  const int64_t inputs = c.is_forward() ? 1 : 2;
  const int64_t mask = mask_bytes(c, element);
  const int64_t least = inputs * visible_elements(c) * element + pass + mask;
  // ATen's softmax, and its scaling, which reads and writes all scores too.
  const int64_t chain = (c.is_forward() ? 2 : 6) * pass + 2 * pass;
  return {.least = least,
          .fused = least,
          .unfused = chain + chain_mask_step(c, element),
          .inputs = inputs * pass + mask};
}

}  // namespace warpfuse::host::bench
