// Stop texts in pieces of any size, and what is shown of a prompt and its continuation.

#include <string>
#include <vector>

#include "failure_of.h"
#include "runtime/text/text_output.h"
#include "support/catch.h"

using namespace warpfuse::host;

namespace {

// What comes out when `bytes` come in pieces of this size; "|" where a stop text was found.
std::string shown(const std::vector<std::string>& stops, const std::string& bytes, size_t piece) {
  StopTexts texts(stops);
  std::string result;
  for (size_t i = 0; i < bytes.size(); i += piece) {
    result += texts.push(bytes.substr(i, piece));
  }
  result += texts.finish();
  return texts.found() ? result + "|" : result;
}

}  // namespace

TEST_CASE("a text ends before its first stop text, whatever the pieces", "[text]") {
  for (const size_t piece : {1, 2, 3, 7, 100}) {
    CAPTURE(piece);
    CHECK(shown({}, "all of it", piece) == "all of it");
    CHECK(shown({"xyz"}, "all of it", piece) == "all of it");
    CHECK(shown({"of"}, "all of it", piece) == "all |");
    CHECK(shown({"it", "of"}, "all of it", piece) == "all |");
    CHECK(shown({"aab"}, "aaaab and more", piece) == "aa|");
    CHECK(shown({"ab", "b"}, "xab", piece) == "x|");
    CHECK(shown({"aba"}, "ab ababa", piece) == "ab |");
    CHECK(shown({"all"}, "all", piece) == "|");
    CHECK(shown({"end."}, "no end", piece) == "no end");
  }
}

TEST_CASE("what may be the start of a stop text is held back, and no more", "[text]") {
  StopTexts texts({"END"});
  CHECK(texts.push("a E") == "a ");
  CHECK(texts.push("N") == "");
  CHECK(texts.push("E") == "EN");
  CHECK(texts.push("ND tail") == "");
  CHECK(texts.found());
  CHECK(texts.push("later") == "");
  CHECK(texts.finish() == "");
}

TEST_CASE("a stop text inside the prompt ends nothing", "[text]") {
  TextOutput output({"stop"});
  CHECK(output.show("do not stop ") == "do not stop ");
  CHECK(output.push("here sto") == "here ");
  CHECK_FALSE(output.stopped());
  CHECK(output.push("p") == "");
  CHECK(output.stopped());
  CHECK(output.finish() == "");
}

TEST_CASE("a code point that the prompt begins and the continuation ends", "[text]") {
  TextOutput output({});
  CHECK(output.show("caf\xC3") == "caf");
  CHECK(output.push("\xA9!") == "\xC3\xA9!");
  CHECK(output.push("\xE2\x82") == "");
  CHECK(output.finish() == "\xEF\xBF\xBD");
}

TEST_CASE("escapes of a stop text", "[text]") {
  CHECK(unescape(R"(\n\n)", "--stop") == "\n\n");
  CHECK(unescape(R"(a\t\r\\n\"\'\x41\xe2\x82\xAc.)", "--stop") == "a\t\r\\n\"'A\u20ac.");
  CHECK(unescape(R"(\x00)", "--stop") == std::string(1, '\0'));
  CHECK(unescape("", "--stop").empty());
  for (const char* bad : {R"(\q)", R"(ab\)", R"(\x)", R"(\x1)", R"(\xg1)", R"(\x1g)", R"(\x-1)"}) {
    INFO(bad);
    CHECK(failure_of([&] { unescape(bad, "--stop"); }).starts_with("2: --stop: expected \\n"));
  }
}
