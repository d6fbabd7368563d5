#include "runtime/bpe.h"

#include <queue>

namespace warpfuse::host {
namespace {

constexpr int64_t kNone = -1;

// A token of the piece, in a doubly linked list; a token merged into its left neighbour has id
// kNone.
struct Symbol {
  int64_t id;
  int64_t previous;
  int64_t next;
};

struct Candidate {
  int32_t rank;
  int32_t left;
  int32_t right;
  int32_t merged;
  int64_t position;  // of the left symbol

  // std::priority_queue gives the largest first: lower rank wins, then the position further left.
  bool operator<(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : position > other.position;
  }
};

uint64_t pair_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32U | static_cast<uint32_t>(right);
}

}  // namespace

void MergeTable::add(int32_t left, int32_t right, int32_t merged) {
  rules_.try_emplace(pair_key(left, right), Rule{static_cast<int32_t>(rules_.size()), merged});
}

const MergeTable::Rule* MergeTable::find(int32_t left, int32_t right) const {
  const auto found = rules_.find(pair_key(left, right));
  return found == rules_.end() ? nullptr : &found->second;
}

std::vector<int32_t> MergeTable::apply(const std::vector<int32_t>& tokens) const {
  const auto size = static_cast<int64_t>(tokens.size());
  std::vector<Symbol> symbols;
  symbols.reserve(tokens.size());
  for (int64_t i = 0; i < size; ++i) {
    symbols.push_back({tokens[i], i - 1, i + 1 < size ? i + 1 : kNone});
  }

  std::priority_queue<Candidate> candidates;
  const auto consider = [&](int64_t position) {
    if (position == kNone || symbols[position].next == kNone) {
      return;
    }
    const auto left = static_cast<int32_t>(symbols[position].id);
    const auto right = static_cast<int32_t>(symbols[symbols[position].next].id);
    if (const Rule* rule = find(left, right)) {
      candidates.push({rule->rank, left, right, rule->merged, position});
    }
  };
  for (int64_t i = 0; i < size; ++i) {
    consider(i);
  }

  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Symbol& symbol = symbols[best.position];
    // An earlier merge may have changed either side since this candidate was noted.
    if (symbol.id != best.left || symbol.next == kNone || symbols[symbol.next].id != best.right) {
      continue;
    }
    Symbol& absorbed = symbols[symbol.next];
    symbol.id = best.merged;
    symbol.next = absorbed.next;
    absorbed.id = kNone;
    if (symbol.next != kNone) {
      symbols[symbol.next].previous = best.position;
    }
    consider(symbol.previous);
    consider(best.position);
  }

  std::vector<int32_t> merged;
  for (int64_t i = 0; i != kNone && i < size; i = symbols[i].next) {
    merged.push_back(static_cast<int32_t>(symbols[i].id));
  }
  return merged;
}

}  // namespace warpfuse::host
