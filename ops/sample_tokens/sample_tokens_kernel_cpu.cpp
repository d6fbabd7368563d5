#include <algorithm>
#include <array>
#include <vector>

#include "sample_tokens/sample_search.h"
#include "sample_tokens/sample_tokens.h"

namespace warpfuse::WARPFUSE_ISA {
namespace {

/// Tokens per block: a block is reduced with vectors, and only the one with the result is searched.
constexpr int64_t kBlock = 1024;

/// A row as keys.
template <typename Format>
class Row {
 public:
  using Key = Format::Key;

  Row(const SampleTokensArguments& arguments, int64_t row)
      : bits_(static_cast<const Format::Bits*>(arguments.logits) + row * arguments.row_stride),
        columns_(arguments.columns) {}

  Key operator[](int64_t token) const { return Format::key(bits_[token]); }
  int64_t columns() const { return columns_; }

 private:
  const Format::Bits* bits_;
  int64_t columns_;
};

/// The largest key, and the first token that has it.
template <typename Format>
struct Largest {
  Format::Key key = -Format::kInfinity;
  int64_t token = -1;

  explicit Largest(const Row<Format>& row) {
    int64_t block = -1;
    for (int64_t begin = 0; begin < row.columns(); begin += kBlock) {
      const int64_t end = std::min(begin + kBlock, row.columns());
      auto block_max = -Format::kInfinity;
      for (int64_t i = begin; i < end; ++i) {
        block_max = std::max(block_max, row[i]);
      }
      if (block_max > key) {
        key = block_max;
        block = begin;
      }
    }
    for (token = block; token >= 0 && row[token] != key;) {
      ++token;
    }
  }

  bool is_drawable() const { return token >= 0 && key != Format::kNaN; }
};

/// The smallest key above `bound`.
template <typename Format>
Format::Key smallest_above(const Row<Format>& row, typename Format::Key bound) {
  auto smallest = Format::kNaN;
  for (int64_t i = 0; i < row.columns(); ++i) {
    smallest = std::min(smallest, row[i] > bound ? row[i] : Format::kNaN);
  }
  return smallest;
}

template <typename Key>
using Search = KeySearch<Key, 11>;

/// Completes a search among the keys above `bound` and returns its target: target(total), from the
/// total of mass(i) over tokens.
template <typename Format, typename Mass, typename Target>
uint64_t search_keys(const Row<Format>& row, typename Format::Key bound,
                     Search<typename Format::Key>& search, const Mass& mass, const Target& target) {
  constexpr auto kDigits = Search<typename Format::Key>::kDigits;
  std::array<uint64_t, kDigits + 1> masses;  // the last: keys left out
  bool first = true;
  uint64_t wanted = 0;
  while (!search.done()) {
    masses.fill(0);
    for (int64_t i = 0; i < row.columns(); ++i) {
      const auto key = row[i];
      masses[key > bound ? search.digit(key) : kDigits] += mass(i);
    }
    if (first) {
      uint64_t total = 0;
      for (unsigned digit = 0; digit < kDigits; ++digit) {
        total += masses[digit];
      }
      wanted = target(total);
      first = false;
    }
    uint64_t above = 0;
    unsigned digit = 0;
    while (search.above() + above + masses[digit] < wanted) {
      above += masses[digit++];
    }
    search.enter(digit, above);
  }
  return wanted;
}

/// The first token at which the running sum of mass(i) exceeds `position`.
template <typename Mass>
int64_t token_at(int64_t columns, uint64_t position, const Mass& mass) {
  for (int64_t begin = 0;; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, columns);
    uint64_t sum = 0;
    for (int64_t i = begin; i < end; ++i) {
      sum += mass(i);
    }
    if (sum <= position) {
      position -= sum;
      continue;
    }
    int64_t token = begin;
    while (mass(token) <= position) {
      position -= mass(token++);
    }
    return token;
  }
}

/// masses: scratch memory, [columns].
template <typename Format>
int64_t sample_row(const SampleTokensArguments& arguments, int64_t index, uint64_t* masses) {
  using Key = Format::Key;
  const SampleRule& rule = arguments.rule;
  const Row<Format> row(arguments, index);
  const int64_t columns = row.columns();
  const Largest<Format> largest(row);
  if (!largest.is_drawable() || rule.greedy) {
    return largest.is_drawable() ? largest.token : -1;
  }
  KeptKeys<Key> kept{-Format::kInfinity, -Format::kInfinity};
  if (rule.top_k > 0) {
    Search<Key> search(largest.key, smallest_above(row, kept.bound));
    search_keys(
        row, kept.bound, search, [](int64_t) { return uint64_t{1}; },
        [&](uint64_t total) { return std::min(total, static_cast<uint64_t>(rule.top_k)); });
    kept = KeptKeys<Key>::from(search.key());
  }
  const TokenMass<Format> mass(largest.key, rule.scale);
  for (int64_t i = 0; i < columns; ++i) {
    masses[i] = mass(row[i]);
  }
  if (rule.has_top_p) {
    Search<Key> search(largest.key, smallest_above(row, kept.bound));
    const uint64_t target = search_keys(
        row, kept.bound, search, [&](int64_t i) { return masses[i]; },
        [&](uint64_t total) { return mass_to_keep(total, rule); });
    kept = KeptKeys<Key>::to(search.key(), search.above(), target, mass(search.key()));
  }
  uint64_t total = 0;
  for (int64_t i = 0; i < columns; ++i) {
    const bool drawn = row[i] > kept.bound && masses[i] >= rule.min_mass;
    masses[i] = drawn ? masses[i] : 0;
    total += masses[i];
  }
  const uint64_t tie_mass = kept.ties > 0 ? mass(kept.tie) : 0;
  const Draw draw(random_bits(arguments, index), total, tie_mass >= rule.min_mass ? kept.ties : 0,
                  tie_mass);
  return draw.is_tie ? token_at(columns, draw.position,
                                [&](int64_t i) { return uint64_t{row[i] == kept.tie}; })
                     : token_at(columns, draw.position, [&](int64_t i) { return masses[i]; });
}

template <typename Format>
void sample_rows(const SampleTokensArguments& arguments, int64_t begin, int64_t end) {
  std::vector<uint64_t> masses(arguments.rule.greedy ? 0 : arguments.columns);
  for (int64_t row = begin; row < end; ++row) {
    arguments.tokens[row] = sample_row<Format>(arguments, row, masses.data());
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
