#include "runtime/text/added_tokens.h"

#include <algorithm>

#include "runtime/files.h"
#include "runtime/parse.h"

namespace warpfuse::host {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The object in a file of the folder; empty where there is no such file.
json read_object(const fs::path& file) {
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(file, ignored))) {
    return json::object();
  }
  return read_json_object(file);
}

AddedToken token_of(const std::string& text, const json& id, const std::string& file) {
  if (text.empty() || !is_integer_within(id, 0, INT64_MAX)) {
    fail(ExitCode::model, "{}: added token {}: expected a text and an id of at least 0, got {}",
         file, json(text).dump(), id.dump());
  }
  return {.text = text, .id = id.get<int64_t>()};
}

void require_plain(const json& token, const std::string& text, const std::string& file) {
  for (const char* flag : {"lstrip", "rstrip", "single_word"}) {
    if (token.value(flag, json(false)) == true) {
      fail(ExitCode::model, "{}: added token {}: {} is not supported", file, json(text).dump(),
           flag);
    }
  }
}

// A token as these files write it: its text, or an object with "content".
std::string text_of(const json& token, const std::string& file) {
  const json text = token.is_object() ? token.value("content", json()) : token;
  if (!text.is_string()) {
    fail(ExitCode::model, "{}: expected a token, got {}", file, excerpt(token));
  }
  if (token.is_object()) {
    require_plain(token, text.get<std::string>(), file);
  }
  return text.get<std::string>();
}

}  // namespace

void AddedTokens::add(AddedToken token) {
  const auto is_same = [&](const AddedToken& known) { return known.text == token.text; };
  if (std::ranges::any_of(tokens_, is_same)) {
    return;
  }
  starts_[static_cast<unsigned char>(token.text.front())] = true;
  const auto shorter = std::ranges::find_if(
      tokens_, [&](const AddedToken& known) { return known.text.size() < token.text.size(); });
  tokens_.insert(shorter, std::move(token));
}

std::optional<AddedTokens::Match> AddedTokens::find(std::string_view text) const {
  for (size_t at = 0; at < text.size(); ++at) {
    if (!starts_[static_cast<unsigned char>(text[at])]) {
      continue;
    }
    const auto found = std::ranges::find_if(
        tokens_, [&](const AddedToken& token) { return text.substr(at).starts_with(token.text); });
    if (found != tokens_.end()) {
      return Match{.at = at, .token = &*found};
    }
  }
  return std::nullopt;
}

std::vector<AddedToken> read_added_tokens(
    const fs::path& folder, const std::unordered_map<std::string, int32_t>& vocabulary) {
  std::vector<AddedToken> tokens;
  const std::string added = (folder / "added_tokens.json").string();
  const json ids = read_object(added);
  for (const auto& [text, id] : ids.items()) {
    tokens.push_back(token_of(text, id, added));
  }
  const std::string whole = (folder / "tokenizer.json").string();
  const json tokenizer = read_object(whole);
  for (const json& token : tokenizer.value("added_tokens", json::array())) {
    const json id = token.is_object() ? token.value("id", json()) : json();
    tokens.push_back(token_of(text_of(token, whole), id, whole));
  }
  const std::string map = (folder / "special_tokens_map.json").string();
  const json special = read_object(map);
  for (const auto& [role, value] : special.items()) {
    for (const json& token : value.is_array() ? value : json::array({value})) {
      const std::string text = text_of(token, map);
      const auto known = std::ranges::find(tokens, text, &AddedToken::text);
      if (known != tokens.end()) {
        continue;
      }
      const auto id = vocabulary.find(text);
      if (id == vocabulary.end()) {
        fail(ExitCode::model, "{}: {} {} has no id in the vocabulary, nor in added_tokens.json",
             map, role, json(text).dump());
      }
      tokens.push_back({.text = text, .id = id->second});
    }
  }
  return tokens;
}

}  // namespace warpfuse::host
