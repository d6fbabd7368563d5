// scaled_masked_softmax, with every kind of mask. ATen's is the chain that it stands for, one
// kernel a step; what a mask step needs is ready before.

#include <ATen/TensorOperators.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <warpfuse/dispatch.h>
#include <warpfuse/scaled_masked_softmax.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "bench/masks.h"
#include "bench/suites/inputs.h"
#include "bench/suites/suites.h"

namespace warpfuse::host::bench {
namespace attention_suite {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

// A power of two, so that the chain's multiplication is exact.
constexpr double kScale = 0.125;
constexpr std::array kMasks{Mask::causal, Mask::padding, Mask::boolean, Mask::additive,
                            Mask::positions};
constexpr double kHiddenShare = 0.2;  // of a boolean mask
constexpr int64_t kIndexBytes = sizeof(int64_t);
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Set {
  at::Tensor scores;               // forward
  at::Tensor output, grad_output;  // backward
  OptionalTensor attn_mask, query_positions, key_lengths;
  // For the chain and the reference: true = hidden, broadcasts to the scores; undefined where no
  // key is hidden.
  at::Tensor hidden;
};

const char* causal_of(const Case& c) { return c.mask == Mask::causal ? "upper_left" : "none"; }

// --- inputs -----------------------------------------------------------------------------------

// A set of which keys are hidden by position: with key_lengths, query_positions and hidden.
Set positions_of(const Case& c, const at::TensorOptions& options) {
  Set set;
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

void add_masks(std::vector<Set>& sets, const Case& c, const at::TensorOptions& options) {
  std::ranges::fill(sets, positions_of(c, options));
  const Scores scores = scores_of(c.shape);
  const auto count = static_cast<int64_t>(sets.size());
  if (c.mask == Mask::boolean) {
    add_tensors(sets, &Set::hidden, {scores.queries, scores.keys}, options.dtype(at::kBool),
                [](const at::Tensor& hidden) { hidden.bernoulli_(kHiddenShare); });
    for (Set& set : sets) {
      set.attn_mask = set.hidden.logical_not();
    }
  } else if (c.mask == Mask::additive) {
    const auto masks = make_tensors(count, {scores.queries, scores.keys}, options);
    for (size_t i = 0; i < sets.size(); ++i) {
      sets[i].attn_mask = masks[i].normal_();
    }
  }
}

// The forward of a part of the scores, in double precision.
at::Tensor forward(const Case& c, const Set& set, const at::Tensor& scores, const Part& part) {
  at::Tensor x = scores * kScale;
  if (c.mask == Mask::additive && set.attn_mask) {
    x = x + part(*set.attn_mask).to(at::kDouble);
  }
  if (!set.hidden.defined()) {
    return at::softmax(x, -1);
  }
  const at::Tensor hidden = part(set.hidden);
  return at::softmax(x.masked_fill(hidden, -kInfinity), -1).masked_fill(hidden, 0.0);
}

// --- variants ---------------------------------------------------------------------------------

at::Tensor chain_forward(const Set& in) {
  at::Tensor scores = in.scores.mul(kScale);
  if (in.hidden.defined()) {
    scores = scores.masked_fill(in.hidden, -kInfinity);
  } else if (in.attn_mask) {
    scores = scores.add(*in.attn_mask);
  }
  return at::softmax(scores, -1);
}

at::Tensor chain_backward(const Set& in) {
  at::Tensor grad =
      at::_softmax_backward_data(in.grad_output, in.output, -1, in.output.scalar_type());
  if (in.hidden.defined()) {
    grad = grad.masked_fill(in.hidden, 0.0);
  }
  return grad.mul(kScale);
}

Expected expected_of(const Case& c, const Set& set, const Part& part) {
  if (c.is_forward()) {
    const at::Tensor value = forward(c, set, part(set.scores).to(at::kDouble), part);
    return {value, value};
  }
  const at::Tensor y = part(set.output).to(at::kDouble);
  Expected gradient = softmax_gradient(y, part(set.grad_output).to(at::kDouble), y * kScale, -1);
  if (set.hidden.defined()) {  // zero also in a row that holds NaN
    gradient.value.masked_fill_(part(set.hidden), 0.0);
  }
  return gradient;
}

std::function<Outputs(int64_t)> plugin_call(const Case& c, const Sets<Set>& sets) {
  const char* causal = causal_of(c);
  if (c.is_forward()) {
    return on(sets, [causal](const Set& in) {
      return scaled_masked_softmax(in.scores, kScale, in.attn_mask, causal, in.query_positions,
                                   in.key_lengths);
    });
  }
  return on(sets, [causal](const Set& in) {
    static const auto op = detail::find_operator<at::Tensor(
        const at::Tensor&, const at::Tensor&, double, const OptionalTensor&, c10::string_view,
        const OptionalTensor&, const OptionalTensor&, int64_t, std::optional<double>)>(
        "warpfuse::_scaled_masked_softmax_backward");
    return op.call(in.grad_output, in.output, kScale, in.attn_mask, causal, in.query_positions,
                   in.key_lengths, 0, std::nullopt);
  });
}

std::vector<Variant> variants(const Case& c, const Setup& setup) {
  using enum Variant::Kind;
  const Sets<Set> sets = make_sets<Set>(setup);
  add_masks(*sets, c, options_of(c, setup));
  add_scores(*sets, c, setup, [&](const Set& set, const at::Tensor& scores, const Part& part) {
    return forward(c, set, scores, part);
  });
  const auto error = against_pieces(sets, c, expected_of);
  return {{"warpfuse", plugin, plugin_call(c, sets), error, tolerance_of(c.dtype, false)},
          {"chain", aten, on(sets, c.is_forward() ? chain_forward : chain_backward), error,
           tolerance_of(c.dtype, true)}};
}

std::vector<std::string> operators(const Case& c) {
  return {c.is_forward() ? "warpfuse::scaled_masked_softmax"
                         : "warpfuse::_scaled_masked_softmax_backward"};
}

// --- bytes ------------------------------------------------------------------------------------

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

Bytes bytes(const Case& c) {
  const auto element = static_cast<int64_t>(c10::elementSize(c.dtype));
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

constexpr Benchmark kBenchmark{.name = "scaled_masked_softmax",
                               .shapes = "2 to 4 sizes, and no other dim than the last,",
                               .takes =
                                   [](const Shape& shape) {
                                     const size_t rank = shape.sizes.size();
                                     return rank >= 2 && rank <= 4 && shape.dim == -1;
                                   },
                               .masks = kMasks,
                               .operators = operators,
                               .bytes = bytes,
                               .variants = variants};

}  // namespace
}  // namespace attention_suite

constexpr Benchmark kScaledMaskedSoftmax = attention_suite::kBenchmark;

}  // namespace warpfuse::host::bench
