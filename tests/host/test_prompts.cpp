// Files of prompts.

#include <filesystem>
#include <string>
#include <vector>

#include "failure_of.h"
#include "runtime/text/prompts.h"
#include "support/catch.h"
#include "temporary_folder.h"

using namespace warpfuse::host;

namespace {

using Prompts = std::vector<std::string>;

Prompts texts_of(const std::filesystem::path& file) {
  Prompts texts;
  for (const Prompt& prompt : read_prompts(file)) {
    texts.push_back(prompt.text);
  }
  return texts;
}

}  // namespace

TEST_CASE("a prompt a line, as bytes", "[prompts]") {
  const TemporaryFolder folder;
  folder.write("prompts.txt", "one\n\n two \n\xFF{\"prompt\": 1}\nlast");
  CHECK(texts_of(folder.path() / "prompts.txt") ==
        Prompts{"one", " two ", "\xFF{\"prompt\": 1}", "last"});
}

TEST_CASE("a JSON value a line", "[prompts]") {
  const TemporaryFolder folder;
  folder.write("prompts.jsonl", "\"one\\ntwo\"\n\n{\"prompt\": \"\", \"n\": 3}\n");
  CHECK(texts_of(folder.path() / "prompts.jsonl") == Prompts{"one\ntwo", ""});
}

TEST_CASE("JSON is told by what the lines hold", "[prompts]") {
  const TemporaryFolder folder;
  const auto read = [&](const std::string& text) {
    folder.write("prompts", text);
    return texts_of(folder.path() / "prompts");
  };
  CHECK(read("{\"prompt\": \"a\"}\n\"b\"\n") == Prompts{"a", "b"});
  CHECK(read("\"a\"\n\n\"b\"") == Prompts{"a", "b"});
  CHECK(read("\"a\"\nb\n") == Prompts{"\"a\"", "b"});
  CHECK(read("{a}\n") == Prompts{"{a}"});
  CHECK(failure_of([&] { read("{\"prompt\": \"a\"}\nb\n"); }).find("prompts line 2: expected") !=
        std::string::npos);
}

TEST_CASE("a byte order mark and CRLF are no part of a prompt", "[prompts]") {
  const TemporaryFolder folder;
  folder.write("prompts.txt", "\xEF\xBB\xBFone\r\n\r\ntwo\r\n");
  CHECK(texts_of(folder.path() / "prompts.txt") == Prompts{"one", "two"});
  folder.write("prompts.jsonl", "\xEF\xBB\xBF\"one\"\r\n");
  CHECK(texts_of(folder.path() / "prompts.jsonl") == Prompts{"one"});
  folder.write("prompt.txt", "\xEF\xBB\xBFone\ntwo\r\n");
  CHECK(read_prompt(folder.path() / "prompt.txt").text == "one\ntwo");
}

TEST_CASE("a prompt knows the line that it is from", "[prompts]") {
  const TemporaryFolder folder;
  folder.write("prompts.txt", "one\n\nthree\n");
  const std::vector<Prompt> prompts = read_prompts(folder.path() / "prompts.txt");
  REQUIRE(prompts.size() == 2);
  CHECK(prompts[1].source == (folder.path() / "prompts.txt").string() + " line 3");
}

TEST_CASE("files of prompts that cannot be used are named", "[prompts]") {
  const TemporaryFolder folder;
  const auto failure = [&](const std::string& name, const std::string& text) {
    folder.write(name, text);
    return failure_of([&] { texts_of(folder.path() / name); });
  };
  const std::string path = folder.path().string() + "/";
  CHECK(failure("empty.txt", "\n\n") == "2: --prompts " + path + "empty.txt: has no prompt in it");
  const std::string expected = ": expected a JSON string or an object with a string \"prompt\"";
  CHECK(failure("a.jsonl", "\"good\"\n{\"text\": \"x\"}\n") ==
        "2: " + path + "a.jsonl line 2" + expected);
  CHECK(failure("b.jsonl", "\"never ends\n") == "2: " + path + "b.jsonl line 1" + expected);
  CHECK(failure("c.jsonl", "{\"prompt\": 3}\n") == "2: " + path + "c.jsonl line 1" + expected);
  CHECK(failure_of([&] { texts_of(folder.path() / "none"); }) ==
        "2: " + path + "none: cannot be read: No such file or directory");
}
