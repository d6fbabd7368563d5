#include "runtime/text/tokenizer.h"

#include <sstream>

#include "runtime/files.h"
#include "runtime/parse.h"

namespace warpfuse::host {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kEndOfText = "<|endoftext|>";
constexpr int64_t kLargestId =
    10'000'000;  // far above any vocabulary; a bound on what a bad file can allocate

// --- GPT-2's vocabulary files write each byte as one printable character -----------------------

// Characters of the alphabet lie below this code point: 256 plus the 68 bytes that are not
// printable.
constexpr size_t kCodePoints = 324;
constexpr int16_t kUnused = -1;

constexpr bool stands_for_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) ||
         (byte >= 0xAE && byte <= 0xFF);
}

// Printable Latin-1 bytes stand for themselves; the others take the code points from 256 on, in
// order.
constexpr auto kByteOfCodePoint = [] {
  std::array<int16_t, kCodePoints> bytes{};
  bytes.fill(kUnused);
  size_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    bytes[stands_for_itself(byte) ? static_cast<size_t>(byte) : next++] =
        static_cast<int16_t>(byte);
  }
  return bytes;
}();

// Empty when `written` has a character outside that alphabet.
std::optional<std::string> bytes_of_written_token(std::string_view written) {
  std::string bytes;
  for (size_t i = 0; i < written.size(); ++i) {
    size_t code_point = static_cast<uint8_t>(written[i]);
    if (code_point >= 0x80) {  // all characters of the alphabet fit in two bytes of UTF-8
      if (code_point < 0xC2 || code_point > 0xDF || i + 1 == written.size()) {
        return std::nullopt;
      }
      code_point = (code_point & 0x1FU) << 6U | (static_cast<uint8_t>(written[++i]) & 0x3FU);
    }
    if (code_point >= kCodePoints || kByteOfCodePoint[code_point] == kUnused) {
      return std::nullopt;
    }
    bytes.push_back(static_cast<char>(kByteOfCodePoint[code_point]));
  }
  return bytes;
}

// --- files ------------------------------------------------------------------------------------

// The first name that exists in the folder; `names[0]` is the one to report when none does.
fs::path find_file(const fs::path& folder, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    std::error_code ignored;
    if (fs::path file = folder / name; fs::exists(fs::symlink_status(file, ignored))) {
      return file;
    }
  }
  fail(ExitCode::model, "{}: no such file (a tokenizer needs vocab.json and merges.txt)",
       (folder / *names.begin()).string());
}

}  // namespace

Tokenizer Tokenizer::load(const fs::path& folder) {
  Tokenizer tokenizer;
  tokenizer.read_vocabulary(find_file(folder, {"vocab.json", "encoder.json"}));
  tokenizer.read_merges(find_file(folder, {"merges.txt", "vocab.bpe"}));
  tokenizer.read_added(folder);
  return tokenizer;
}

void Tokenizer::read_vocabulary(const fs::path& file) {
  const json vocabulary = parse_json(read_model_file(file), ExitCode::model, file.string());
  if (!vocabulary.is_object()) {
    fail(ExitCode::model, "{}: expected a JSON object of token -> id", file.string());
  }
  for (const auto& [written, value] : vocabulary.items()) {
    if (!is_integer_within(value, 0, kLargestId)) {
      fail(ExitCode::model, "{}: id of token {}: expected an integer of 0..{}, got {}",
           file.string(), json(written).dump(), kLargestId, value.dump());
    }
    const auto id = value.get<int64_t>();
    // A token outside the byte alphabet was added after training and stands for its own text.
    std::string& token = new_token(id, file);
    token = bytes_of_written_token(written).value_or(written);
    ids_.emplace(token, static_cast<int32_t>(id));
    if (written == kEndOfText) {
      end_of_text_ = id;
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (!ids_.contains(std::string(1, static_cast<char>(byte)))) {
      fail(ExitCode::model, "{}: no token for byte 0x{:02x}; byte-level BPE needs all 256",
           file.string(), byte);
    }
  }
}

std::optional<int64_t> Tokenizer::id_in_vocabulary(const std::string& text) const {
  const auto found = ids_.find(text);
  return found == ids_.end() ? std::nullopt : std::optional<int64_t>(found->second);
}

void Tokenizer::read_merges(const fs::path& file) {
  std::istringstream stream(read_model_file(file));
  std::string line;
  for (int64_t number = 1; std::getline(stream, line); ++number) {
    if (!line.empty() && line.back() == '\r') {
      line.pop_back();
    }
    if (line.empty() || (number == 1 && line.starts_with("#version"))) {
      continue;
    }
    const size_t space = line.find(' ');
    if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos) {
      fail(ExitCode::model, "{} line {}: expected two tokens with one space between them",
           file.string(), number);
    }
    const auto left = bytes_of_written_token(std::string_view(line).substr(0, space));
    const auto right = bytes_of_written_token(std::string_view(line).substr(space + 1));
    const auto id_of = [&](const std::string& token) {
      if (const std::optional<int64_t> id = id_in_vocabulary(token)) {
        return static_cast<int32_t>(*id);
      }
      fail(ExitCode::model, "{} line {}: a token of this rule is not in the vocabulary",
           file.string(), number);
    };
    if (!left || !right) {
      fail(ExitCode::model, "{} line {}: not written in GPT-2's byte alphabet", file.string(),
           number);
    }
    merges_.add(id_of(*left), id_of(*right), id_of(*left + *right));
  }
}

void Tokenizer::read_added(const fs::path& folder) {
  if (end_of_text_) {
    added_.add({.text = std::string(kEndOfText), .id = *end_of_text_});
  }
  for (AddedToken& token : read_added_tokens(folder, ids_)) {
    const std::optional<int64_t> known = id_in_vocabulary(token.text);
    if (token.id > kLargestId || (known && *known != token.id)) {
      fail(ExitCode::model, "{}: added token '{}': id {} is too large, or not the vocabulary's",
           folder.string(), token.text, token.id);
    }
    if (!known) {
      new_token(token.id, folder) = token.text;
      ids_.emplace(token.text, static_cast<int32_t>(token.id));
    }
    if (token.text == kEndOfText) {
      end_of_text_ = token.id;
    }
    added_.add(std::move(token));
  }
}

std::string& Tokenizer::new_token(int64_t id, const fs::path& file) {
  if (id >= size()) {
    tokens_.resize(id + 1);
  }
  std::string& token = tokens_[id];
  if (!token.empty()) {
    fail(ExitCode::model, "{}: id {} stands for two tokens", file.string(), id);
  }
  return token;
}

void Tokenizer::encode_plain(std::string_view text, std::vector<int64_t>& ids) const {
  std::vector<int32_t> bytes;
  for (const std::string_view piece : split_pieces(text)) {
    bytes.clear();
    for (const char byte : piece) {
      bytes.push_back(ids_.at(std::string(1, byte)));
    }
    const std::vector<int32_t> merged = merges_.apply(bytes);
    ids.insert(ids.end(), merged.begin(), merged.end());
  }
}

std::vector<int64_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int64_t> ids;
  while (const std::optional<AddedTokens::Match> next = added_.find(text)) {
    encode_plain(text.substr(0, next->at), ids);
    ids.push_back(next->token->id);
    text.remove_prefix(next->at + next->token->text.size());
  }
  encode_plain(text, ids);
  return ids;
}

std::vector<int64_t> Tokenizer::encode_prompt(std::string_view text) const {
  if (!text.empty()) {
    return encode(text);
  }
  if (!end_of_text_) {
    fail(ExitCode::model, "an empty prompt starts from {}, which the vocabulary lacks", kEndOfText);
  }
  return {*end_of_text_};
}

const std::string& Tokenizer::bytes(int64_t id) const {
  if (!has(id)) {
    fail(ExitCode::usage, "token id {} is not in the vocabulary of {} tokens", id, size());
  }
  return tokens_[static_cast<size_t>(id)];
}

std::string Tokenizer::decode(const std::vector<int64_t>& ids) const {
  std::string text;
  for (const int64_t id : ids) {
    text += bytes(id);
  }
  return text;
}

}  // namespace warpfuse::host
