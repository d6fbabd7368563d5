#include "runtime/byte_alphabet.h"

#include <array>
#include <cstdint>

namespace warpfuse::host {
namespace {

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
constexpr std::array<int16_t, kCodePoints> make_byte_of_code_point() {
  std::array<int16_t, kCodePoints> bytes{};
  bytes.fill(kUnused);
  size_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    bytes[stands_for_itself(byte) ? static_cast<size_t>(byte) : next++] =
        static_cast<int16_t>(byte);
  }
  return bytes;
}

constexpr auto kByteOfCodePoint = make_byte_of_code_point();

}  // namespace

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

}  // namespace warpfuse::host
