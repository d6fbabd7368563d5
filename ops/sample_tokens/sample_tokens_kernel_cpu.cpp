#include "sample_tokens/blocked_row.h"
#include "sample_tokens/key_list.h"
#include "sample_tokens/sample_counters.h"
#include "sample_tokens/sample_search.h"
#include "sample_tokens/sample_tokens.h"

namespace warpfuse::WARPFUSE_ISA {
namespace {

/// Draws the tokens of rows, one after the other.
template <typename Format>
class RowSampler {
 public:
  using Key = Format::Key;

  explicit RowSampler(const SampleTokensArguments& arguments)
      : arguments_(arguments), row_(arguments.columns), list_(arguments.columns) {}

  int64_t sample(int64_t index) {
    const SampleRule& rule = arguments_.rule;
    const Key largest = row_.read(static_cast<const Format::Bits*>(arguments_.logits) +
                                  index * arguments_.row_stride);
    if (largest == Format::kNaN || largest == -Format::kInfinity) {
      return -1;
    }
    if (rule.greedy) {
      return row_.first(largest);
    }
    KeptKeys<Key> kept{-Format::kInfinity, -Format::kInfinity};
    if (rule.top_k > 0) {
      kept = KeptKeys<Key>::from(top_key(rule.top_k));
    }
    const TokenMass<Format> mass(largest, rule.scale);
    if (rule.has_top_p) {
      list_.collect(row_, kept.bound);
      const auto found =
          list_.search(mass, [&](uint64_t total) { return mass_to_keep(total, rule); });
      kept = KeptKeys<Key>::to(found.key, found.above, found.target, mass(found.key));
    }
    const auto drawn_mass = [mass, bound = kept.bound, min_mass = rule.min_mass](Key key) {
      const uint64_t own = mass(key);
      const uint64_t above = key > bound ? own : 0;
      return above >= min_mass ? above : 0;
    };
    const uint64_t total = row_.sum(kept.bound, drawn_mass);
    const uint64_t tie_mass = kept.ties > 0 ? mass(kept.tie) : 0;
    const Draw draw(random_bits(arguments_, index), total,
                    tie_mass >= rule.min_mass ? kept.ties : 0, tie_mass);
    return draw.is_tie ? tie(kept.tie, draw.position) : row_.token_at(draw.position, drawn_mass);
  }

 private:
  /// The key of the k-th largest token; of the smallest that is not -inf, where they are fewer.
  Key top_key(int64_t k) {
    const auto one = [](Key) { return uint64_t{1}; };
    const auto target = [k](uint64_t total) { return std::min(total, static_cast<uint64_t>(k)); };
    Key bound = -Format::kInfinity;
    if (k < row_.blocks()) {
      // k blocks have a key of at least the k-th largest of their maxima.
      bounded_rows.add();
      list_.assign(row_.maxima(), row_.blocks());
      bound = std::max<Key>(bound, list_.search(one, target).key - 1);
    }
    list_.collect(row_, bound);
    return list_.search(one, target).key;
  }

  /// Token number `position` of those that have `key`.
  int64_t tie(Key key, uint64_t position) {
    const auto equal = [key](Key other) { return uint64_t{other == key}; };
    row_.sum(key - 1, equal);
    return row_.token_at(position, equal);
  }

  const SampleTokensArguments& arguments_;
  BlockedRow<Format> row_;
  KeyList<Key> list_;
};

template <typename Format>
void sample_rows(const SampleTokensArguments& arguments, int64_t begin, int64_t end) {
  RowSampler<Format> sampler(arguments);
  for (int64_t row = begin; row < end; ++row) {
    arguments.tokens[row] = sampler.sample(row);
  }
}

}  // namespace

void sample_tokens_cpu(const SampleTokensArguments& arguments, int64_t begin, int64_t end) {
  switch (arguments.dtype) {
    case DType::float64:
      return sample_rows<Float64Format>(arguments, begin, end);
    case DType::float32:
      return sample_rows<Float32Format>(arguments, begin, end);
    case DType::float16:
      return sample_rows<Float16Format>(arguments, begin, end);
    case DType::bfloat16:
      return sample_rows<BFloat16Format>(arguments, begin, end);
  }
}

}  // namespace warpfuse::WARPFUSE_ISA
