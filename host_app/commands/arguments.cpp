#include "commands/arguments.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iostream>

#include "runtime/errors.h"

namespace warpfuse::host {
namespace {

cxxopts::ParseResult parse(cxxopts::Options& options,
                           std::initializer_list<std::string> positionals, int argc,
                           const char* const* argv) {
  options.parse_positional(positionals);
  try {
    cxxopts::ParseResult result = options.parse(argc, argv);
    if (!result.unmatched().empty()) {
      fail(ExitCode::usage, "unexpected argument '{}' (see --help)", result.unmatched().front());
    }
    return result;
  } catch (const cxxopts::exceptions::exception& error) {
    fail(ExitCode::usage, "{} (see --help)", error.what());
  }
}

// The whole of `text` as a number.
template <typename Number>
bool parse_number(const std::string& text, Number& number) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end;
}

}  // namespace

Arguments::Arguments(cxxopts::Options options, std::initializer_list<std::string> positionals,
                     int argc, const char* const* argv)
    : options_(std::move(options)), result_(parse(options_, positionals, argc, argv)) {}

std::string Arguments::spelled(const std::string& name) const {
  for (const cxxopts::HelpOptionDetails& option : options_.group_help("").options) {
    const bool found = std::ranges::find(option.l, name) != option.l.end();
    if (found && !option.s.empty()) {
      return fmt::format("-{}, --{}", option.s, name);
    }
  }
  return "--" + name;
}

std::string Arguments::text(const std::string& name) const {
  try {
    return result_[name].as<std::string>();
  } catch (const cxxopts::exceptions::exception&) {
    fail(ExitCode::usage, "{} is missing (see --help)", spelled(name));
  }
}

std::optional<std::string> Arguments::optional_text(const std::string& name) const {
  return has(name) ? std::optional(text(name)) : std::nullopt;
}

int64_t Arguments::integer(const std::string& name, int64_t low, int64_t high) const {
  const std::string given = text(name);
  int64_t value = 0;
  if (!parse_number(given, value) || value < low || value > high) {
    const std::string range = high == std::numeric_limits<int64_t>::max()
                                  ? fmt::format("of at least {}", low)
                                  : fmt::format("of {}..{}", low, high);
    fail(ExitCode::usage, "{}: expected an integer {}, got '{}'", spelled(name), range, given);
  }
  return value;
}

double Arguments::number(const std::string& name, double low, double high) const {
  const std::string given = text(name);
  double value = 0;
  if (!parse_number(given, value) || !std::isfinite(value) || value < low || value > high) {
    if (std::isinf(high)) {
      fail(ExitCode::usage, "{}: expected a number of at least {}, got '{}'", spelled(name), low,
           given);
    }
    fail(ExitCode::usage, "{}: expected a number of {}..{}, got '{}'", spelled(name), low, high,
         given);
  }
  return value;
}

std::vector<std::string> Arguments::texts(const std::string& name) const {
  return has(name) ? result_[name].as<std::vector<std::string>>() : std::vector<std::string>();
}

bool Arguments::help_shown(const std::string& examples) const {
  if (!has("help")) {
    return false;
  }
  std::cout << options_.help() << "\nExamples:\n" << examples;
  return true;
}

PluginOptions Arguments::plugin_options() const {
  PluginOptions options;
  if (has("plugin")) {
    options.plugin = text("plugin");
  }
  options.op_libraries = texts("op-library");
  return options;
}

std::shared_ptr<cxxopts::Value> value_option() { return cxxopts::value<std::string>(); }

std::shared_ptr<cxxopts::Value> repeatable_option() {
  return cxxopts::value<std::vector<std::string>>();
}

std::shared_ptr<cxxopts::Value> value_option(const std::string& default_value) {
  return cxxopts::value<std::string>()->default_value(default_value);
}

void add_plugin_options(cxxopts::Options& options) {
  options.add_options()("plugin", "libwarpfuse.so (default: beside this program, then ../lib)",
                        value_option(), "PATH")(
      "op-library", "another operator library that a model needs; may be repeated",
      repeatable_option(), "PATH");
}

void add_device_option(cxxopts::Options& options) {
  options.add_options()("device", "auto, cpu, cuda or cuda:<index>", value_option("auto"),
                        "DEVICE");
}

void add_help_option(cxxopts::Options& options) {
  options.add_options()("h,help", "show this help");
}

}  // namespace warpfuse::host
