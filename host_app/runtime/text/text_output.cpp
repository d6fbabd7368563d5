#include "runtime/text/text_output.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iterator>

#include "runtime/errors.h"

namespace warpfuse::host {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Table 3-7 of the Unicode standard, "Well-Formed UTF-8 Byte Sequences". Bytes after the second are
// 0x80..0xBF; a byte in no row starts no code point.
struct LeadBytes {
  uint8_t first, last, length, second_low, second_high;
};
constexpr LeadBytes kLeadBytes[] = {
    {0x00, 0x7F, 1, 0x00, 0x00}, {0xC2, 0xDF, 2, 0x80, 0xBF}, {0xE0, 0xE0, 3, 0xA0, 0xBF},
    {0xE1, 0xEC, 3, 0x80, 0xBF}, {0xED, 0xED, 3, 0x80, 0x9F}, {0xEE, 0xEF, 3, 0x80, 0xBF},
    {0xF0, 0xF0, 4, 0x90, 0xBF}, {0xF1, 0xF3, 4, 0x80, 0xBF}, {0xF4, 0xF4, 4, 0x80, 0x8F},
};

// The front of a byte string: a code point (complete), a piece that can never become one (invalid),
// or all bytes seen so far (incomplete).
struct Utf8Unit {
  enum class Kind { complete, incomplete, invalid };
  Kind kind;
  size_t length;
};

// `bytes` must not be empty.
Utf8Unit next_utf8_unit(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const auto* const lead = std::ranges::find_if(kLeadBytes, [&](const LeadBytes& row) {
    return row.first <= byte(0) && byte(0) <= row.last;
  });
  if (lead == std::end(kLeadBytes)) {
    return {Utf8Unit::Kind::invalid, 1};
  }
  for (size_t i = 1; i < lead->length; ++i) {
    if (i == bytes.size()) {
      return {Utf8Unit::Kind::incomplete, i};
    }
    const uint8_t low = i == 1 ? lead->second_low : 0x80;
    const uint8_t high = i == 1 ? lead->second_high : 0xBF;
    if (byte(i) < low || byte(i) > high) {
      return {Utf8Unit::Kind::invalid, i};
    }
  }
  return {Utf8Unit::Kind::complete, lead->length};
}

constexpr std::string_view kNames = "ntr\\\"'", kBytes = "\n\t\r\\\"'";

}  // namespace

std::string Utf8Stream::push(std::string_view bytes) {
  held_ += bytes;
  std::string text;
  std::string_view rest = held_;
  while (!rest.empty()) {
    const Utf8Unit unit = next_utf8_unit(rest);
    if (unit.kind == Utf8Unit::Kind::incomplete) {
      break;
    }
    text += unit.kind == Utf8Unit::Kind::complete ? rest.substr(0, unit.length) : kReplacement;
    rest.remove_prefix(unit.length);
  }
  held_ = std::string(rest);
  return text;
}

std::string Utf8Stream::finish() {
  const std::string text(held_.empty() ? std::string_view() : kReplacement);
  held_.clear();
  return text;
}

std::string StopTexts::push(std::string_view bytes) {
  if (found_) {
    return "";
  }
  held_ += bytes;
  size_t first = std::string::npos;
  for (const std::string& text : texts_) {
    first = std::min(first, held_.find(text));
  }
  found_ = first != std::string::npos;
  const size_t shown = found_ ? first : held_.size() - undecided();
  std::string result = held_.substr(0, shown);
  held_.erase(0, found_ ? held_.size() : shown);
  return result;
}

std::string StopTexts::finish() { return std::exchange(held_, ""); }

// Length of the longest suffix of held_ that is a prefix of a stop text.
size_t StopTexts::undecided() const {
  size_t longest = 0;
  for (const std::string& text : texts_) {
    for (size_t length = std::min(text.size() - 1, held_.size()); length > longest; --length) {
      if (std::string_view(held_).ends_with(std::string_view(text).substr(0, length))) {
        longest = length;
      }
    }
  }
  return longest;
}

std::string unescape(std::string_view text, std::string_view option) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      result += text[i];
      continue;
    }
    const std::string_view rest = text.substr(i + 1);
    if (rest.starts_with('x') && rest.size() >= 3) {
      unsigned char byte = 0;
      const char* const end = rest.data() + 3;
      if (std::from_chars(rest.data() + 1, end, byte, 16).ptr == end) {
        result += static_cast<char>(byte);
        i += 3;
        continue;
      }
    }
    const size_t known = rest.empty() ? std::string_view::npos : kNames.find(rest.front());
    if (known == std::string_view::npos) {
      fail(ExitCode::usage, "{}: expected \\n, \\t, \\r, \\\\, \\\", \\' or \\xHH, got '{}'",
           option, text.substr(i, rest.starts_with('x') ? 4 : 2));
    }
    result += kBytes[known];
    ++i;
  }
  return result;
}

}  // namespace warpfuse::host
