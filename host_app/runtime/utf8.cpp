#include "runtime/utf8.h"

#include <cstddef>
#include <cstdint>

namespace warpfuse::host {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct LeadByte {
  size_t length;       // of the whole code point; 0: no code point starts with this byte
  uint8_t second_low;  // the range that the second byte must lie in; later ones: 0x80..0xBF
  uint8_t second_high;
};

// Table 3-7 of the Unicode standard, "Well-Formed UTF-8 Byte Sequences".
LeadByte classify(uint8_t lead) {
  if (lead < 0x80) {
    return {1, 0, 0};
  }
  if (lead < 0xC2) {
    return {0, 0, 0};
  }
  if (lead < 0xE0) {
    return {2, 0x80, 0xBF};
  }
  if (lead == 0xE0) {
    return {3, 0xA0, 0xBF};
  }
  if (lead == 0xED) {
    return {3, 0x80, 0x9F};
  }
  if (lead < 0xF0) {
    return {3, 0x80, 0xBF};
  }
  if (lead == 0xF0) {
    return {4, 0x90, 0xBF};
  }
  if (lead < 0xF4) {
    return {4, 0x80, 0xBF};
  }
  if (lead == 0xF4) {
    return {4, 0x80, 0x8F};
  }
  return {0, 0, 0};
}

// What stands at the front of a byte string. `length` counts the bytes of the code point
// (complete), of the piece that can never become one (invalid, at least 1), or all bytes seen so
// far (incomplete).
struct Utf8Unit {
  enum class Kind { complete, incomplete, invalid };
  Kind kind;
  size_t length;
};

// `bytes` must not be empty.
Utf8Unit next_utf8_unit(std::string_view bytes) {
  const LeadByte lead = classify(static_cast<uint8_t>(bytes.front()));
  if (lead.length == 0) {
    return {Utf8Unit::Kind::invalid, 1};
  }
  for (size_t i = 1; i < lead.length; ++i) {
    if (i == bytes.size()) {
      return {Utf8Unit::Kind::incomplete, i};
    }
    const auto byte = static_cast<uint8_t>(bytes[i]);
    const uint8_t low = i == 1 ? lead.second_low : uint8_t{0x80};
    const uint8_t high = i == 1 ? lead.second_high : uint8_t{0xBF};
    if (byte < low || byte > high) {
      return {Utf8Unit::Kind::invalid, i};
    }
  }
  return {Utf8Unit::Kind::complete, lead.length};
}

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

}  // namespace warpfuse::host
