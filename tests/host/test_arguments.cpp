// How a command reads its options: values beside them or in one word, switches, and what is
// refused.

#include "commands/arguments.h"
#include "failure_of.h"
#include "support/catch.h"

using namespace warpfuse::host;

namespace {

constexpr Option kOptions[] = {{"m,model", "DIR", "a value"},
                               {"n,tokens", "N", "a number"},
                               {"stop", "TEXT", "a text", nullptr, true},
                               {"json", kSwitch, "a switch"}};

const Command& command() {
  static const Command kCommand{.name = "try",
                                .help = "Tries.\n",
                                .examples = "  warpfuse try\n",
                                .options = {{kOptions}},
                                .run = nullptr};
  return kCommand;
}

Arguments parse(std::vector<const char*> words) {
  words.insert(words.begin(), "try");
  return {command(), words};
}

}  // namespace

TEST_CASE("a value is read as it is, beside its option or in one word", "[arguments]") {
  CHECK(parse({"-mdir/x.pt"}).text("model") == "dir/x.pt");
  CHECK(parse({"-m", "-n"}).text("model") == "-n");
  CHECK(parse({"--model", "-no"}).text("model") == "-no");
  CHECK(parse({"--model=-no", "-n3"}).integer("tokens", 0) == 3);
  const Arguments mixed = parse({"--stop", "-n", "-mdir/x", "--stop", "--json"});
  CHECK(mixed.texts("stop") == std::vector<std::string>{"-n", "--json"});
  CHECK(mixed.text("model") == "dir/x");
  CHECK_FALSE(mixed.has("tokens"));
  CHECK_FALSE(mixed.has("json"));
}

TEST_CASE("a switch takes no value", "[arguments]") {
  CHECK(parse({"--json"}).has("json"));
  CHECK(failure_of([] { parse({"--json=false"}); }) ==
        "2: --json: expected no value, as it is a switch, got 'false'");
}
