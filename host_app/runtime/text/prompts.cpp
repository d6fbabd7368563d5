#include "runtime/text/prompts.h"

#include <algorithm>

#include "runtime/files.h"
#include "runtime/parse.h"

namespace warpfuse::host {
namespace {

using nlohmann::json;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

std::string name_of(const std::filesystem::path& file) {
  return file == "-" ? "stdin" : file.string();
}

std::string text_of(const std::filesystem::path& file) {
  std::string text = read_file(file, ExitCode::usage);
  if (text.starts_with(kByteOrderMark)) {
    text.erase(0, kByteOrderMark.size());
  }
  return text;
}

void remove_line_end(std::string& text) {
  if (text.ends_with('\n')) {
    text.pop_back();
  }
  if (text.ends_with('\r')) {
    text.pop_back();
  }
}

// The lines that are not empty.
std::vector<Prompt> lines_of(std::string_view text, const std::string& name) {
  std::vector<Prompt> lines;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t length = std::min(text.find('\n'), text.size() - 1) + 1;
    std::string line(text.substr(0, length));
    text.remove_prefix(length);
    remove_line_end(line);
    if (!line.empty()) {
      lines.push_back(
          {.text = std::move(line), .source = fmt::format("{} line {}", name, number), .id = {}});
    }
  }
  return lines;
}

json parse(const Prompt& line) { return parse_json(line.text, ExitCode::usage, line.source); }

bool are_json(const std::vector<Prompt>& lines) {
  return (lines.front().text.starts_with('{') && parse(lines.front()).is_object()) ||
         std::ranges::all_of(lines, [](const Prompt& line) {
           return line.text.starts_with('"') && parse(line).is_string();
         });
}

// The prompt that a line of JSON holds.
Prompt read_json(const Prompt& line) {
  const json value = parse(line);
  if (value.is_string()) {
    return {.text = value.get<std::string>(), .source = line.source, .id = {}};
  }
  if (value.is_object() && value.contains("prompt") && value["prompt"].is_string()) {
    return {.text = value["prompt"].get<std::string>(),
            .source = line.source,
            .id = value.contains("id") ? value["id"].dump() : ""};
  }
  fail(ExitCode::usage, "{}: expected a JSON string or an object with a string \"prompt\"",
       line.source);
}

}  // namespace

std::vector<Prompt> read_prompts(const std::filesystem::path& file) {
  std::vector<Prompt> prompts = lines_of(text_of(file), name_of(file));
  if (prompts.empty()) {
    fail(ExitCode::usage, "--prompts {}: has no prompt in it", file.string());
  }
  if (file.extension() == ".jsonl" || are_json(prompts)) {
    for (Prompt& line : prompts) {
      line = read_json(line);
    }
  }
  return prompts;
}

Prompt read_prompt(const std::filesystem::path& file) {
  Prompt prompt{.text = text_of(file), .source = name_of(file), .id = {}};
  remove_line_end(prompt.text);
  return prompt;
}

std::vector<std::vector<int64_t>> encode(const Tokenizer& tokenizer,
                                         const std::vector<Prompt>& prompts) {
  std::vector<std::vector<int64_t>> ids;
  ids.reserve(prompts.size());
  for (const Prompt& prompt : prompts) {
    ids.push_back(tokenizer.encode_prompt(prompt.text));
  }
  return ids;
}

}  // namespace warpfuse::host
