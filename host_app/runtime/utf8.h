#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace warpfuse::host {

// What stands at the front of a byte string. `length` counts the bytes of the code point
// (complete), of the piece that can never become one (invalid, at least 1), or all bytes seen so
// far (incomplete).
struct Utf8Unit {
  enum class Kind { complete, incomplete, invalid };
  Kind kind;
  size_t length;
};

// `bytes` must not be empty. Overlong forms, surrogates and values past U+10FFFF are invalid; an
// invalid piece is as long as the Unicode standard's "maximal subpart", so that replacing each by
// U+FFFD gives what web browsers show.
Utf8Unit next_utf8_unit(std::string_view bytes);

// Turns bytes that arrive in any pieces into valid UTF-8 text: a code point is held back until it
// is whole, and bytes that can never be part of one become U+FFFD.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);
  // What is still held back, once no more bytes will come.
  std::string finish();

 private:
  std::string held_;
};

}  // namespace warpfuse::host
