#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace warpfuse::host {

struct AddedToken {
  std::string text;
  int64_t id;
};

// Tokens that stand for a text of their own, such as <|endoftext|>: they are cut out of a text
// before it is split into pieces, the longest first where several begin at one place.
class AddedTokens {
 public:
  struct Match {
    size_t at;
    const AddedToken* token;
  };

  // `token.text` is not empty. The same token again changes nothing.
  void add(AddedToken token);
  // The first one in the text.
  std::optional<Match> find(std::string_view text) const;
  const std::vector<AddedToken>& all() const { return tokens_; }

 private:
  std::vector<AddedToken> tokens_;  // the longest first
  std::array<bool, 256> starts_{};  // bytes that one begins with
};

// Reads Hugging Face's files: added_tokens.json, the "added_tokens" of tokenizer.json, and
// special_tokens_map.json, whose tokens have their ids in the first two or in the vocabulary. A
// folder may have none of them. Throws Error(model) for a damaged file, a token without an id, and
// one that strips spaces or asks for word borders (not supported).
std::vector<AddedToken> read_added_tokens(
    const std::filesystem::path& folder,
    const std::unordered_map<std::string, int32_t>& vocabulary);

}  // namespace warpfuse::host
