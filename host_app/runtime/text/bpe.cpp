#include "runtime/text/bpe.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <memory>
#include <queue>

#include "runtime/errors.h"

namespace warpfuse::host {
namespace {

// GPT-2's pattern. White space is spelled out as Unicode's White_Space property, which is what \s
// means to the original; PCRE2's own \s with PCRE2_UCP has U+180E in addition.
#define WHITE_SPACE R"(\p{Z}\t-\r\x{85})"
constexpr char kPattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^)" WHITE_SPACE R"(\p{L}\p{N}]+|[)" WHITE_SPACE
    R"(]+(?![^)" WHITE_SPACE R"(])|[)" WHITE_SPACE R"(]+)";
#undef WHITE_SPACE

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

// Compiled once, and never freed.
const pcre2_code* compiled_pattern() {
  static const pcre2_code* const code = [] {
    int error = 0;
    PCRE2_SIZE offset = 0;
    pcre2_code* made = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(kPattern), PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF | PCRE2_MATCH_INVALID_UTF, &error, &offset, nullptr);
    if (made == nullptr) {
      fail(ExitCode::check_failed, "PCRE2 refuses GPT-2's pattern: {}", message_of(error));
    }
    // Without JIT support in this PCRE2 each match checks the rest of the text for UTF-8 first: the
    // pieces are the same, in quadratic time.
    pcre2_jit_compile(made, PCRE2_JIT_COMPLETE);
    return made;
  }();
  return code;
}

struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

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

std::vector<std::string_view> split_pieces(std::string_view text) {
  const pcre2_code* const pattern = compiled_pattern();
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(
      pcre2_match_data_create_from_pattern(pattern, nullptr));
  const PCRE2_SIZE* const found = pcre2_get_ovector_pointer(match.get());
  std::vector<std::string_view> pieces;
  const auto add = [&](size_t begin, size_t end) {
    if (end > begin) {
      pieces.push_back(text.substr(begin, end - begin));
    }
  };
  for (size_t start = 0; start < text.size();) {
    const int matched = pcre2_match(pattern, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                    start, 0, match.get(), nullptr);
    if (matched < 0 && matched != PCRE2_ERROR_NOMATCH) {
      fail(ExitCode::check_failed, "splitting text: {}", message_of(matched));
    }
    // Every code point is in one of the alternatives, so only bytes that are no UTF-8 are skipped.
    const auto [begin, end] = matched < 0 ? std::pair(text.size(), text.size())
                                          : std::pair<size_t, size_t>(found[0], found[1]);
    add(start, begin);
    add(begin, end);
    start = end;
  }
  return pieces;
}

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
