#include <random>
#include <string>
#include <vector>

#include "failure_of.h"
#include "runtime/text/bpe.h"
#include "runtime/text/tokenizer.h"
#include "support/catch.h"
#include "temporary_folder.h"
#include "toy_vocabulary.h"

using namespace warpfuse::host;

namespace {

using Ids = std::vector<int64_t>;
using Pieces = std::vector<std::string_view>;

// Merges, first the strongest: b c, a b, ab c. So "abc" is a + bc, since b c is the stronger rule.
Tokenizer toy_tokenizer() {
  TemporaryFolder folder;
  folder.write("vocab.json", toy_vocabulary({"bc", "ab", "abc", "aa", "aaaa"}));
  folder.write("merges.txt", "#version: 0.2\nb c\na b\nab c\na a\naa aa\n");
  return Tokenizer::load(folder.path());
}

constexpr int64_t kBC = 256;
constexpr int64_t kAB = 257;
constexpr int64_t kAA = 259;
constexpr int64_t kAAAA = 260;
constexpr int64_t kEndOfText = 261;

}  // namespace

TEST_CASE("GPT-2's pattern", "[tokenizer]") {
  CHECK(split_pieces("I'll  go 42 times,OK?") ==
        Pieces{"I", "'ll", " ", " go", " 42", " times", ",", "OK", "?"});
  CHECK(split_pieces("a \n b  ") == Pieces{"a", " \n", " b", "  "});
  CHECK(split_pieces("\xC3\xA9t\xC3\xA9 \xE6\x97\xA5\xE6\x9C\xAC\xC2\xBD") ==
        Pieces{"\xC3\xA9t\xC3\xA9", " \xE6\x97\xA5\xE6\x9C\xAC", "\xC2\xBD"});
  CHECK(split_pieces("a\xC2\xA0\xE2\x80\x83"
                     "b") == Pieces{"a", "\xC2\xA0", "\xE2\x80\x83", "b"});
  // U+180E was white space in old Unicode; it is not now.
  CHECK(split_pieces("!\xE1\xA0\x8E!") == Pieces{"!\xE1\xA0\x8E!"});
  CHECK(split_pieces("").empty());
}

TEST_CASE("bytes that are no UTF-8 are pieces of their own", "[tokenizer]") {
  CHECK(split_pieces("ab\xFF\xFE"
                     "cd\xE2\x82") == Pieces{"ab", "\xFF\xFE", "cd", "\xE2\x82"});
  // The white space around one ends as at the end of the text.
  CHECK(split_pieces("a  \xFF  b") == Pieces{"a", "  ", "\xFF", " ", " b"});
  CHECK(split_pieces("\xC0\xAF") == Pieces{"\xC0\xAF"});
  CHECK(split_pieces("x\xED\xA0\x80y") == Pieces{"x", "\xED\xA0\x80", "y"});  // a surrogate
}

TEST_CASE("merges apply by rank, then from the left", "[tokenizer]") {
  const Tokenizer tokenizer = toy_tokenizer();
  CHECK(tokenizer.encode("abc") == Ids{'a', kBC});
  CHECK(tokenizer.encode("abab") == Ids{kAB, kAB});
  CHECK(tokenizer.encode("aaa") == Ids{kAA, 'a'});
  CHECK(tokenizer.encode("aaaaaaa") == Ids{kAAAA, kAA, 'a'});
  CHECK(tokenizer.encode("x y") == Ids{'x', ' ', 'y'});
  CHECK(tokenizer.encode("").empty());
}

TEST_CASE("<|endoftext|> is one token, also inside text", "[tokenizer]") {
  const Tokenizer tokenizer = toy_tokenizer();
  CHECK(tokenizer.end_of_text() == kEndOfText);
  CHECK(tokenizer.encode("ab<|endoftext|>ab") == Ids{kAB, kEndOfText, kAB});
  CHECK(tokenizer.encode_prompt("") == Ids{kEndOfText});
  CHECK(tokenizer.encode_prompt("ab") == Ids{kAB});
  CHECK(tokenizer.decode({kAB, kEndOfText}) == "ab<|endoftext|>");
}

TEST_CASE("decoding gives back any bytes", "[tokenizer]") {
  const Tokenizer tokenizer = toy_tokenizer();
  std::mt19937 random(3);
  for (int trial = 0; trial < 300; ++trial) {
    std::string bytes(random() % 60, '\0');
    // Half of the trials use few letters, so that merges happen.
    for (char& byte : bytes) {
      byte = static_cast<char>(trial % 2 == 0 ? random() : "ab c<\xE2\x82\xAC"[random() % 8]);
    }
    CHECK(tokenizer.decode(tokenizer.encode(bytes)) == bytes);
  }
}

TEST_CASE("a piece of a megabyte takes no quadratic time", "[tokenizer]") {
  const Tokenizer tokenizer = toy_tokenizer();
  const Ids ids = tokenizer.encode(std::string(1 << 20, 'a'));
  CHECK(ids == Ids((1 << 20) / 4, kAAAA));
}

TEST_CASE("ids outside the vocabulary are refused", "[tokenizer]") {
  const Tokenizer tokenizer = toy_tokenizer();
  CHECK(failure_of([&] { tokenizer.decode({-1}); }) ==
        "2: token id -1 is not in the vocabulary of 262 tokens");
  CHECK(failure_of([&] { tokenizer.decode({262}); }) ==
        "2: token id 262 is not in the vocabulary of 262 tokens");
}

TEST_CASE("a vocabulary may have gaps", "[tokenizer]") {
  const TemporaryFolder folder;
  folder.write("vocab.json", toy_vocabulary());
  folder.write("merges.txt", "");
  folder.write("added_tokens.json", R"({"<x>": 300})");
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  CHECK(tokenizer.size() == 301);
  CHECK(tokenizer.has(256));
  CHECK(tokenizer.has(300));
  CHECK_FALSE(tokenizer.has(257));
  CHECK_FALSE(tokenizer.has(301));
  CHECK_FALSE(tokenizer.has(-1));
}

TEST_CASE("damaged tokenizer files are named", "[tokenizer]") {
  const auto failure_with = [](const std::string& vocabulary, const std::string& merges) {
    TemporaryFolder folder;
    folder.write("vocab.json", vocabulary);
    folder.write("merges.txt", merges);
    std::string text = failure_of([&] { Tokenizer::load(folder.path()); });
    const size_t at = text.find(folder.path().string());
    return at == std::string::npos ? text : text.erase(at, folder.path().string().size() + 1);
  };
  CHECK(failure_with("[1]", "") == "3: vocab.json: expected a JSON object of token -> id");
  CHECK(failure_with("{\"a\": -1}", "") ==
        "3: vocab.json: id of token \"a\": expected an integer of 0..10000000, got -1");
  CHECK(failure_with("{\"a\": 10000001}", "") ==
        "3: vocab.json: id of token \"a\": expected an integer of 0..10000000, got 10000001");
  CHECK(failure_with("{\"a\": 10000000}", "") ==
        "3: vocab.json: no token for byte 0x00; byte-level BPE needs all 256");
  CHECK(failure_with("{\"a\": 1, \"b\": 1}", "") == "3: vocab.json: id 1 stands for two tokens");
  CHECK(failure_with("{\"a\": 0}", "") ==
        "3: vocab.json: no token for byte 0x00; byte-level BPE needs all 256");
  CHECK(failure_with(toy_vocabulary(), "#version\nab\n") ==
        "3: merges.txt line 2: expected two tokens with one space between them");
  CHECK(failure_with(toy_vocabulary(), "a b\n") ==
        "3: merges.txt line 1: a token of this rule is not in the vocabulary");
  const TemporaryFolder folder;
  folder.write("vocab.json", toy_vocabulary());
  folder.write("merges.txt", "");
  folder.write("tokenizer.json", R"({"added_tokens": ["<x>"]})");
  CHECK(failure_of([&] { Tokenizer::load(folder.path()); }) ==
        "3: " + (folder.path() / "tokenizer.json").string() +
            ": added token \"<x>\": expected a text and an id of at least 0, got null");
  CHECK(failure_of([] { Tokenizer::load("/nonexistent"); }) ==
        "3: /nonexistent/vocab.json: no such file (a tokenizer needs vocab.json and merges.txt)");
}
