#include <fmt/ranges.h>

#include <cerrno>
#include <iostream>

#include "commands/commands.h"
#include "runtime/output.h"
#include "runtime/parse.h"
#include "runtime/text/tokenizer.h"

namespace warpfuse::host {
namespace {

using nlohmann::json;

constexpr Option kTokenizeOptions[] = {
    {"tokenizer", "DIR", "folder with vocab.json and merges.txt"},
    {"decode", kSwitch, "from ids to text"},
    {"json", kSwitch, "text is a JSON string, ids are a JSON array"},
};

std::vector<int64_t> parse_ids(std::string_view line) {
  static constexpr std::string_view kSpaces = " \t\r";
  std::vector<int64_t> ids;
  for (size_t at = 0; (at = line.find_first_not_of(kSpaces)) != std::string_view::npos;) {
    line.remove_prefix(at);
    const std::string_view word = line.substr(0, line.find_first_of(kSpaces));
    line.remove_prefix(word.size());
    const std::optional<int64_t> id = parse_number(word);
    if (!id) {
      fail(ExitCode::usage, "expected token ids with spaces between them");
    }
    ids.push_back(*id);
  }
  return ids;
}

// The value of a line with --json; `expected` names the type in words.
template <typename Value, typename Check>
Value parse_json(const std::string& line, const char* expected, Check check) {
  const json value = parse_json(line, ExitCode::usage, "the line");
  if (value.is_discarded() || !check(value)) {
    fail(ExitCode::usage, "expected {}", expected);
  }
  return value.get<Value>();
}

std::string parse_json_text(const std::string& line) {
  return parse_json<std::string>(line, "a JSON string",
                                 [](const json& value) { return value.is_string(); });
}

std::vector<int64_t> parse_json_ids(const std::string& line) {
  return parse_json<std::vector<int64_t>>(line, "a JSON array of token ids", [](const json& value) {
    return value.is_array() && std::ranges::all_of(value, [](const json& id) {
             return is_integer_within(id, INT64_MIN, INT64_MAX);
           });
  });
}

std::string encode_line(const Tokenizer& tokenizer, const std::string& line, bool as_json) {
  if (as_json) {
    return json(tokenizer.encode(parse_json_text(line))).dump();
  }
  return fmt::format("{}", fmt::join(tokenizer.encode(line), " "));
}

std::string decode_line(const Tokenizer& tokenizer, const std::string& line, bool as_json) {
  if (!as_json) {
    return tokenizer.decode(parse_ids(line));
  }
  // JSON is UTF-8, so bytes that are not become U+FFFD here; without --json they come out as they
  // are.
  return dump(json(tokenizer.decode(parse_json_ids(line))));
}

ExitCode run_tokenize(const Arguments& arguments) {
  const Tokenizer tokenizer = Tokenizer::load(arguments.text("tokenizer"));
  const bool as_json = arguments.has("json");
  const auto convert = arguments.has("decode") ? decode_line : encode_line;
  std::ios::sync_with_stdio(false);
  std::string line;
  std::string converted;
  for (int64_t number = 1; std::getline(std::cin, line); ++number) {
    try {
      converted = convert(tokenizer, line, as_json);
    } catch (const Error& error) {
      fail(ExitCode::usage, "stdin line {}: {}", number, error.what());
    }
    write_output(converted += '\n');
  }
  if (std::cin.bad()) {
    fail(ExitCode::usage, "stdin: cannot be read: {}",
         std::error_code(errno, std::generic_category()).message());
  }
  return ExitCode::ok;
}

}  // namespace

Command tokenize_command() {
  return {.name = "tokenize",
          .summary = "turn lines of text into token ids, and back",
          .help = "Turns each line of stdin into one line of token ids, or back with --decode.\n",
          .examples =
              "  echo \"Hello world\" | warpfuse tokenize --tokenizer MODEL\n"
              "  echo \"15496 995\" | warpfuse tokenize --tokenizer MODEL --decode\n"
              "  echo '\"two\\nlines\"' | warpfuse tokenize --tokenizer MODEL --json\n",
          .options = {{kTokenizeOptions}},
          .run = run_tokenize};
}

}  // namespace warpfuse::host
