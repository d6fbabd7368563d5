// Files of prompts.

#include <string>
#include <vector>

#include "failure_of.h"
#include "runtime/prompts.h"
#include "support/catch.h"
#include "temporary_folder.h"

using warpfuse::host::read_prompts;

namespace {

using Prompts = std::vector<std::string>;

}  // namespace

TEST_CASE("a prompt a line, as bytes", "[prompts]") {
  const TemporaryFolder folder;
  folder.write("prompts.txt", "one\n\n two \n\xFF{\"prompt\": 1}\nlast");
  CHECK(read_prompts(folder.path() / "prompts.txt") ==
        Prompts{"one", " two ", "\xFF{\"prompt\": 1}", "last"});
}

TEST_CASE("a JSON value a line", "[prompts]") {
  const TemporaryFolder folder;
  folder.write("prompts.jsonl", "\"one\\ntwo\"\n\n{\"prompt\": \"\", \"n\": 3}\n");
  CHECK(read_prompts(folder.path() / "prompts.jsonl") == Prompts{"one\ntwo", ""});
}

TEST_CASE("files of prompts that cannot be used are named", "[prompts]") {
  const TemporaryFolder folder;
  const auto failure = [&](const std::string& name, const std::string& text) {
    folder.write(name, text);
    return failure_of([&] { read_prompts(folder.path() / name); });
  };
  const std::string path = folder.path().string() + "/";
  CHECK(failure("empty.txt", "\n\n") == "2: --prompts " + path + "empty.txt: has no prompt in it");
  const std::string expected = ": expected a JSON string or an object with a string \"prompt\"";
  CHECK(failure("a.jsonl", "\"good\"\n{\"text\": \"x\"}\n") ==
        "2: " + path + "a.jsonl line 2" + expected);
  CHECK(failure("b.jsonl", "\"never ends\n") == "2: " + path + "b.jsonl line 1" + expected);
  CHECK(failure("c.jsonl", "{\"prompt\": 3}\n") == "2: " + path + "c.jsonl line 1" + expected);
  CHECK(failure_of([&] { read_prompts(folder.path() / "none"); }) ==
        "2: " + path + "none: cannot be read");
}
