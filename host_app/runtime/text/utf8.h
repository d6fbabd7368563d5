#pragma once

#include <string>
#include <string_view>

namespace warpfuse::host {

// Turns bytes that arrive in any pieces into valid UTF-8 text: a code point is held back until it
// is whole, and bytes that can never be part of one become U+FFFD: one for each of the Unicode
// standard's "maximal subparts", as in web browsers. Overlong forms, surrogates and values past
// U+10FFFF are no code points.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);
  // Returns the text of the bytes still held back; no more will come.
  std::string finish();

 private:
  std::string held_;
};

}  // namespace warpfuse::host
