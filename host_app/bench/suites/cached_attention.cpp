// cached_attention_softmax on shapes batch x heads x tokens x slots x channels, its cache full to
// the last token; with mask `positions` the rows of a batch end at different slots. Queries, keys
// and values lie as GPT-2's projection writes them. ATen's is the update of the cache and
// scaled_dot_product_attention, with is_causal for a whole prompt; "sdpa" is the latter alone.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <warpfuse/cached_attention_softmax.h>

#include "bench/suites/inputs.h"
#include "bench/suites/suites.h"

namespace warpfuse::host::bench {
namespace cached_attention_suite {
namespace {

constexpr std::array kMasks{Mask::positions};

struct Sizes {
  int64_t batch, heads, tokens, slots, channels;

  explicit Sizes(const Case& c)
      : batch(c.shape.sizes[0]),
        heads(c.shape.sizes[1]),
        tokens(c.shape.sizes[2]),
        slots(c.shape.sizes[3]),
        channels(c.shape.sizes[4]) {}

  double scale() const { return 1 / std::sqrt(static_cast<double>(channels)); }
};

// The slots that the last token of a row sees.
int64_t seen_slots(const Case& c, int64_t row) {
  const Sizes sizes(c);
  return c.mask == Mask::positions ? sizes.tokens + (sizes.slots - sizes.tokens) * row /
                                                        std::max<int64_t>(sizes.batch - 1, 1)
                                   : sizes.slots;
}

struct Set {
  at::Tensor projected;                    // [B, T, H, 3, D]
  at::Tensor cache;                        // [1, 2, B, H, S, D]
  at::Tensor positions;                    // [B, T]
  std::optional<at::Tensor> visible = {};  // for ATen, bool [B, 1, T, S]

  at::Tensor query() const { return projected.select(3, 0).transpose(1, 2); }  // [B, H, T, D]
  // Keys and values, [2, B, H, T, D].
  at::Tensor added() const { return projected.narrow(3, 1, 2).permute({3, 0, 2, 1, 4}); }
  // Where they go: the same sizes, of slots.
  at::Tensor index() const {
    return positions.unsqueeze(1).unsqueeze(-1).unsqueeze(0).expand(added().sizes());
  }
};

Sets<Set> make_inputs(const Case& c, const Setup& setup) {
  const Sizes sizes(c);
  const at::TensorOptions options = options_of(c, setup);
  const at::TensorOptions integers = options.dtype(at::kLong);
  Sets<Set> sets = make_sets<Set>(setup);
  add_tensors(*sets, &Set::projected, {sizes.batch, sizes.tokens, sizes.heads, 3, sizes.channels},
              options, setup.scores);
  add_tensors(*sets, &Set::cache, {1, 2, sizes.batch, sizes.heads, sizes.slots, sizes.channels},
              options);
  std::vector<at::Tensor> rows;
  for (int64_t row = 0; row < sizes.batch; ++row) {
    const int64_t end = seen_slots(c, row);
    rows.push_back(at::arange(end - sizes.tokens, end, integers));
  }
  const at::Tensor positions = at::stack(rows);
  const bool all = sizes.tokens == 1 && c.mask == Mask::none;
  for (Set& set : *sets) {
    set.positions = positions;
    if (!all) {
      set.visible = at::arange(sizes.slots, integers).le(positions.unsqueeze(1).unsqueeze(-1));
    }
  }
  return sets;
}

// --- calls ------------------------------------------------------------------------------------

at::Tensor attend(const Case& c, const Set& in) {
  const Sizes sizes(c);
  const bool causal = sizes.tokens == sizes.slots && sizes.tokens > 1;  // positions are 0 to S - 1
  const at::Tensor layer = in.cache.select(0, 0);
  return at::scaled_dot_product_attention(in.query(), layer.select(0, 0), layer.select(0, 1),
                                          causal ? std::nullopt : in.visible, 0.0, causal);
}

at::Tensor update_and_attend(const Case& c, const Set& in) {
  in.cache.select(0, 0).scatter_(3, in.index(), in.added());
  return attend(c, in);
}

// --- checks -----------------------------------------------------------------------------------

double error_of(const Case& c, const Set& in, const Outputs& outputs) {
  const Sizes sizes(c);
  const at::Tensor query = in.query(), layer = in.cache.select(0, 0);
  if (outputs.result.sizes() != query.sizes() || outputs.result.scalar_type() != c.dtype ||
      !layer.gather(3, in.index()).equal(in.added())) {
    return kInfinity;
  }
  double error = 0;
  for (int64_t row = 0; row < sizes.batch; ++row) {
    const auto wide = [&](const at::Tensor& tensor) {
      return tensor.select(0, row).to(at::kDouble);
    };
    const at::Tensor values = wide(layer.select(0, 1));
    at::Tensor scores =
        wide(query).matmul(wide(layer.select(0, 0)).transpose(-1, -2)) * sizes.scale();
    const at::Tensor size = scores.abs();
    if (in.visible) {
      scores = scores.masked_fill(in.visible->select(0, row).logical_not(), -kInfinity);
    }
    const at::Tensor p = at::softmax(scores, -1);
    // A rounded score changes its power by |score| times as much, and the sum likewise.
    const at::Tensor terms = p * (1 + size + (p * size).sum(-1, true));
    error = worse(error, largest_error(outputs.result.select(0, row),
                                       {p.matmul(values), terms.matmul(values.abs())},
                                       smallest_difference(c.dtype)));
  }
  return error;
}

// --- the benchmark ----------------------------------------------------------------------------

std::vector<Variant> variants(const Case& c, const Setup& setup) {
  using enum Variant::Kind;
  const Sets<Set> sets = make_inputs(c, setup);
  const auto error = against(
      sets, [c](const Set& in, const Outputs& outputs) { return error_of(c, in, outputs); });
  const auto call = on(sets, [scale = Sizes(c).scale()](const Set& in) {
    const at::Tensor added = in.added();
    at::Tensor cache = in.cache;
    return cached_attention_softmax(in.query(), added.select(0, 0), added.select(0, 1), cache, 0,
                                    in.positions, scale);
  });
  const double of_aten = tolerance_of(c.dtype, true);
  return {{"warpfuse", plugin, call, error, tolerance_of(c.dtype, false)},
          {"aten", aten, on(sets, [c](const Set& in) { return update_and_attend(c, in); }), error,
           of_aten},
          {"sdpa", aten, on(sets, [c](const Set& in) { return attend(c, in); }), error, of_aten}};
}

std::vector<std::string> operators(const Case& /*c*/) {
  return {"warpfuse::cached_attention_softmax"};
}

// Queries, keys and values are read, two of them are written to the cache, and the result; of the
// cache is read what other tokens wrote, and by ATen's attention the new ones too.
Bytes bytes(const Case& c) {
  const Sizes sizes(c);
  const int64_t slot = sizes.heads * sizes.channels * c.element_bytes();
  const int64_t tokens = sizes.batch * sizes.tokens;
  int64_t seen = 0;
  for (int64_t row = 0; row < sizes.batch; ++row) {
    seen += seen_slots(c, row);
  }
  const int64_t positions = tokens * static_cast<int64_t>(sizeof(int64_t));
  const int64_t least = (3 + 2 + 1) * tokens * slot + 2 * (seen - tokens) * slot + positions;
  return {.least = least,
          .fused = least,
          .unfused = least + 2 * tokens * slot,
          .inputs = 3 * tokens * slot + 2 * sizes.batch * sizes.slots * slot + positions};
}

constexpr Benchmark kBenchmark{
    .name = "cached_attention_softmax",
    .shapes = "5 sizes, batch x heads x tokens x slots x channels with no more tokens than slots,",
    .takes =
        [](const Shape& shape) {
          return shape.sizes.size() == 5 && shape.dim == -1 && shape.sizes[2] <= shape.sizes[3];
        },
    .directions = kForward,
    .masks = kMasks,
    .float64 = false,
    .operators = operators,
    .bytes = bytes,
    .variants = variants};

}  // namespace
}  // namespace cached_attention_suite

constexpr Benchmark kCachedAttentionSoftmax = cached_attention_suite::kBenchmark;

}  // namespace warpfuse::host::bench
