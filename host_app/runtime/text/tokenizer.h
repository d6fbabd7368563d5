#pragma once

#include "runtime/text/added_tokens.h"
#include "runtime/text/bpe.h"

namespace warpfuse::host {

// GPT-2's byte-level BPE. decode(encode(x)) == x for any byte string x.
class Tokenizer {
 public:
  // Reads vocab.json and merges.txt of `folder`, or encoder.json and vocab.bpe, as OpenAI named
  // them, and the added tokens.
  static Tokenizer load(const std::filesystem::path& folder);

  // <|endoftext|>, if the vocabulary has it, and the tokens that the folder's files name as added
  // or special (added_tokens.h) stand for themselves inside the text.
  std::vector<int64_t> encode(std::string_view text) const;
  // The same, but <|endoftext|> when `text` is empty: a model needs a token to start from.
  std::vector<int64_t> encode_prompt(std::string_view text) const;
  std::string decode(const std::vector<int64_t>& ids) const;
  // The bytes of one token, not necessarily whole code points. Throws Error(usage) where there is
  // none.
  const std::string& bytes(int64_t id) const;
  // Whether a token has this id: a vocabulary may have gaps, before an added token for one.
  bool has(int64_t id) const {
    return id >= 0 && id < size() && !tokens_[static_cast<size_t>(id)].empty();
  }

  // One more than the largest id.
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  std::optional<int64_t> end_of_text() const { return end_of_text_; }

 private:
  std::optional<int64_t> id_in_vocabulary(const std::string& text) const;
  void read_vocabulary(const std::filesystem::path& file);
  void read_merges(const std::filesystem::path& file);
  void read_added(const std::filesystem::path& folder);
  // Room for the token `id`, which no other stands for yet.
  std::string& new_token(int64_t id, const std::filesystem::path& file);
  void encode_plain(std::string_view text, std::vector<int64_t>& ids) const;

  MergeTable merges_;
  std::vector<std::string> tokens_;               // bytes by id
  std::unordered_map<std::string, int32_t> ids_;  // id by bytes
  AddedTokens added_;
  std::optional<int64_t> end_of_text_;
};

}  // namespace warpfuse::host
