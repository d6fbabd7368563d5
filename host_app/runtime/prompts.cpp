#include "runtime/prompts.h"

#include <nlohmann/json.hpp>

#include "runtime/errors.h"
#include "runtime/files.h"

namespace warpfuse::host {
namespace {

std::string prompt_of(const std::string& line, const std::string& place) {
  const nlohmann::json value = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (value.is_string()) {
    return value.get<std::string>();
  }
  if (value.is_object() && value.contains("prompt") && value["prompt"].is_string()) {
    return value["prompt"].get<std::string>();
  }
  fail(ExitCode::usage, "{}: expected a JSON string or an object with a string \"prompt\"", place);
}

}  // namespace

std::vector<std::string> read_prompts(const std::filesystem::path& file) {
  std::ifstream stream = open_file(file.string(), ExitCode::usage);
  const bool json = file.extension() == ".jsonl";
  std::vector<std::string> prompts;
  int64_t number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    if (line.empty()) {
      continue;
    }
    prompts.push_back(json ? prompt_of(line, fmt::format("{} line {}", file.string(), number))
                           : line);
  }
  if (prompts.empty()) {
    fail(ExitCode::usage, "--prompts {}: has no prompt in it", file.string());
  }
  return prompts;
}

}  // namespace warpfuse::host
