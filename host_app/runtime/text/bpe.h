#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace warpfuse::host {

// Splits text into the pieces that byte-level BPE works on, by GPT-2's pattern. The pieces, views
// into `text`, cover it without gaps. Any bytes are accepted: a run of bytes that is not UTF-8 is a
// piece of its own, and the text around it is split as if it ended there.
std::vector<std::string_view> split_pieces(std::string_view text);

// The merge rules of byte-pair encoding, over token ids.
class MergeTable {
 public:
  // Rules are added in the order of their rank: the first one has the highest priority.
  void add(int32_t left, int32_t right, int32_t merged);

  // Applies the rules to one piece of text, given as the tokens of its bytes: always the rule of
  // the lowest rank first, leftmost first. O(n log n), so that a long piece cannot stall the
  // program.
  std::vector<int32_t> apply(const std::vector<int32_t>& tokens) const;

 private:
  struct Rule {
    int32_t rank;
    int32_t merged;
  };

  const Rule* find(int32_t left, int32_t right) const;

  std::unordered_map<uint64_t, Rule> rules_;  // key: left id, right id
};

}  // namespace warpfuse::host
