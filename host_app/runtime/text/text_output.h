#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

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

// Looks for the first of several texts in bytes that come in pieces. A possible start of one is
// held back; once one is whole, neither it nor anything after it comes out.
class StopTexts {
 public:
  explicit StopTexts(std::vector<std::string> texts) : texts_(std::move(texts)) {}

  // Returns the bytes that can be shown.
  std::string push(std::string_view bytes);
  bool found() const { return found_; }
  // Returns the bytes still held back; no more will come.
  std::string finish();

 private:
  size_t undecided() const;

  std::vector<std::string> texts_;
  std::string held_;
  bool found_ = false;
};

// The text of one continuation, as its tokens come.
class TextOutput {
 public:
  explicit TextOutput(std::vector<std::string> stop_texts) : stops_(std::move(stop_texts)) {}

  // The prompt, in which no stop text is looked for.
  std::string show(std::string_view prompt) { return utf8_.push(prompt); }
  std::string push(std::string_view bytes) { return utf8_.push(stops_.push(bytes)); }
  bool stopped() const { return stops_.found(); }
  std::string finish() { return utf8_.push(stops_.finish()) + utf8_.finish(); }

 private:
  StopTexts stops_;
  Utf8Stream utf8_;
};

// Replaces the escapes \n, \t, \r, \\, \", \' and \xHH (a byte, two hexadecimal digits): a shell
// passes a backslash on as it is. Throws Error(usage), which begins with `option`, for any other
// backslash.
std::string unescape(std::string_view text, std::string_view option);

}  // namespace warpfuse::host
