#include <string>
#include <utility>
#include <vector>

#include "runtime/text/text_output.h"
#include "support/catch.h"

using warpfuse::host::Utf8Stream;

namespace {

std::string streamed(const std::string& bytes, size_t piece) {
  Utf8Stream stream;
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += piece) {
    text += stream.push(bytes.substr(i, piece));
  }
  return text + stream.finish();
}

}  // namespace

TEST_CASE("a code point is held back until it is whole", "[utf8]") {
  Utf8Stream stream;
  CHECK(stream.push("a\xF0\x9F") == "a");
  CHECK(stream.push("\x98").empty());
  CHECK(stream.push("\x80z") == "\xF0\x9F\x98\x80z");
  CHECK(stream.finish().empty());
}

TEST_CASE("bytes that are no UTF-8 become U+FFFD, however they arrive", "[utf8]") {
  const std::string replaced = "\xEF\xBF\xBD";
  // The expected texts follow the Unicode standard's examples of maximal subparts (section 3.9).
  const std::vector<std::pair<std::string, std::string>> cases{
      {"caf\xC3\xA9", "caf\xC3\xA9"},
      {"\x80z", replaced + "z"},
      {"\xC0\xAF", replaced + replaced},
      {"\xE0\x9F\x80", replaced + replaced + replaced},
      {"\xED\xA0\x80", replaced + replaced + replaced},
      {"\xF4\x91\x92\x93\xFF\x41", replaced + replaced + replaced + replaced + replaced + "A"},
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", replaced + replaced + replaced + replaced + "A"},
      {"tail\xE2\x82", "tail" + replaced},
      {"\xE2\x82x", replaced + "x"},
      {"\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF"},
  };
  for (const auto& [bytes, expected] : cases) {
    for (size_t piece = 1; piece <= bytes.size(); ++piece) {
      CHECK(streamed(bytes, piece) == expected);
    }
  }
}
