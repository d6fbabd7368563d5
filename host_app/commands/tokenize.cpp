#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "commands/arguments.h"
#include "commands/commands.h"
#include "runtime/json_text.h"
#include "runtime/output.h"
#include "runtime/text/tokenizer.h"

namespace warpfuse::host {
namespace {

using nlohmann::json;

constexpr const char* kTokenizeExamples =
    "  echo \"Hello world\" | warpfuse tokenize --tokenizer MODEL\n"
    "  echo \"15496 995\" | warpfuse tokenize --tokenizer MODEL --decode\n"
    "  echo '\"two\\nlines\"' | warpfuse tokenize --tokenizer MODEL --json\n";

constexpr Option kTokenizeOptions[] = {
    {"tokenizer", "DIR", "folder with vocab.json and merges.txt"},
    {"decode", kSwitch, "from ids to text"},
    {"json", kSwitch, "text is a JSON string, ids are a JSON array"},
};

cxxopts::Options tokenize_options() {
  cxxopts::Options options(
      "warpfuse tokenize",
      "Turns each line of stdin into one line of token ids, or back with --decode.\n");
  add_options(options, kTokenizeOptions);
  add_help_option(options);
  return options;
}

std::vector<int64_t> parse_ids(const std::string& line) {
  std::vector<int64_t> ids;
  const char* at = line.data();
  const char* const end = at + line.size();
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (true) {
    while (at != end && is_space(*at)) {
      ++at;
    }
    if (at == end) {
      return ids;
    }
    int64_t id = 0;
    const auto [stop, error] = std::from_chars(at, end, id);
    if (error != std::errc() || (stop != end && !is_space(*stop))) {
      fail(ExitCode::usage, "expected token ids with spaces between them");
    }
    ids.push_back(id);
    at = stop;
  }
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
    return value.is_array() &&
           std::ranges::all_of(value, [](const json& id) { return id.is_number_integer(); });
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
  return json(tokenizer.decode(parse_json_ids(line)))
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

ExitCode run_tokenize(int argc, const char* const* argv) {
  const Arguments arguments(tokenize_options(), {}, argc, argv);
  if (arguments.help_shown(kTokenizeExamples)) {
    return ExitCode::ok;
  }
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
  return ExitCode::ok;
}

}  // namespace warpfuse::host
