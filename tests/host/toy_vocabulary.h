#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

// A vocabulary file: one token a byte in GPT-2's alphabet (ids 0..255), then `more`, then
// <|endoftext|>.
inline std::string toy_vocabulary(const std::vector<std::string>& more = {}) {
  nlohmann::json vocabulary;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const int code_point = itself ? byte : next++;
    std::string written;
    if (code_point < 0x80) {
      written += static_cast<char>(code_point);
    } else {
      written += static_cast<char>(0xC0 | code_point >> 6);
      written += static_cast<char>(0x80 | (code_point & 0x3F));
    }
    vocabulary[written] = byte;
  }
  for (const std::string& token : more) {
    vocabulary[token] = vocabulary.size();
  }
  vocabulary["<|endoftext|>"] = vocabulary.size();
  return vocabulary.dump();
}
