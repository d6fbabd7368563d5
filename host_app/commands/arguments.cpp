#include "commands/arguments.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <iterator>
#include <memory>

#include "runtime/errors.h"
#include "runtime/output.h"

namespace warpfuse::host {
namespace {

// Calls `action` with each option that is described, in whatever group.
template <typename Action>
void for_each_option(const cxxopts::Options& options, const Action& action) {
  for (const std::string& group : options.groups()) {
    std::ranges::for_each(options.group_help(group).options, action);
  }
}

// "-mDIR" in two arguments, "-m" and "DIR": cxxopts takes no value in one with its option that has
// a slash or a dot in it.
std::vector<std::string> with_values_apart(const cxxopts::Options& options, int argc,
                                           const char* const* argv) {
  std::string with_value;
  for_each_option(options, [&](const cxxopts::HelpOptionDetails& option) {
    with_value += option.is_boolean ? "" : option.s;
  });
  std::vector<std::string> arguments(argv, argv + argc);
  for (size_t i = 1; i < arguments.size() && arguments[i] != "--"; ++i) {
    const std::string& given = arguments[i];
    if (given.size() < 2 || given[0] != '-' || with_value.find(given[1]) == std::string::npos) {
      continue;
    }
    if (given.size() > 2) {
      const std::string value = given.substr(2);
      arguments[i].resize(2);
      arguments.insert(arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1, value);
    }
    ++i;  // the value, whatever it looks like
  }
  return arguments;
}

void require_once(const cxxopts::Options& options, const cxxopts::ParseResult& result) {
  for_each_option(options, [&](const cxxopts::HelpOptionDetails& option) {
    if (!option.is_container && !option.is_boolean && result.count(option.l.front()) > 1) {
      fail(ExitCode::usage, "--{} is given twice (see --help)", option.l.front());
    }
  });
}

cxxopts::ParseResult parse(cxxopts::Options& options,
                           std::initializer_list<std::string> positionals, int argc,
                           const char* const* argv) {
  options.parse_positional(positionals);
  const std::vector<std::string> arguments = with_values_apart(options, argc, argv);
  std::vector<const char*> pointers;
  std::ranges::transform(arguments, std::back_inserter(pointers), &std::string::c_str);
  try {
    cxxopts::ParseResult result = options.parse(static_cast<int>(pointers.size()), pointers.data());
    require_once(options, result);
    if (!result.unmatched().empty()) {
      fail(ExitCode::usage, "unexpected argument '{}' (see --help)", result.unmatched().front());
    }
    return result;
  } catch (const cxxopts::exceptions::exception& error) {
    fail(ExitCode::usage, "{} (see --help)", error.what());
  }
}

constexpr int64_t kMaxThreads = 4096;

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
    : options_(std::move(options)),
      positionals_(positionals),
      result_(parse(options_, positionals, argc, argv)) {}

std::string Arguments::spelled(const std::string& name) const {
  std::string spelling = "--" + name;
  for_each_option(options_, [&](const cxxopts::HelpOptionDetails& option) {
    if (std::ranges::find(option.l, name) != option.l.end() && !option.s.empty()) {
      spelling = fmt::format("-{}, --{}", option.s, name);
    }
  });
  return spelling;
}

std::string Arguments::text(const std::string& name) const {
  try {
    return result_[name].as<std::string>();
  } catch (const cxxopts::exceptions::exception&) {
    if (std::ranges::find(positionals_, name) != positionals_.end()) {
      std::string names = fmt::format("{}", fmt::join(positionals_, ", "));
      std::ranges::transform(names, names.begin(), [](unsigned char c) { return std::toupper(c); });
      fail(ExitCode::usage, "expected {} (see --help)", names);
    }
    fail(ExitCode::usage, "the option {} is missing (see --help)", spelled(name));
  }
}

std::optional<std::string> Arguments::optional_text(const std::string& name) const {
  return has(name) ? std::optional(text(name)) : std::nullopt;
}

int64_t Arguments::integer(const std::string& name, int64_t low, int64_t high) const {
  const std::string given = text(name);
  int64_t value = 0;
  if (!parse_number(given, value) || value < low || value > high) {
    const std::string expected = low == high ? std::to_string(low)
                                 : high == std::numeric_limits<int64_t>::max()
                                     ? fmt::format("an integer of at least {}", low)
                                     : fmt::format("an integer of {}..{}", low, high);
    fail(ExitCode::usage, "{}: expected {}, got '{}'", spelled(name), expected, given);
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
  print("{}\nExamples:\n{}", options_.help(), examples);
  return true;
}

std::optional<int64_t> Arguments::threads() const {
  return has("threads") ? std::optional(integer("threads", 1, kMaxThreads)) : std::nullopt;
}

PluginOptions Arguments::plugin_options(bool with_table) const {
  PluginOptions options;
  if (has("plugin")) {
    options.plugin = text("plugin");
  }
  options.op_libraries = texts("op-library");
  if (with_table) {
    options.tuning = optional_text("tuning");
  }
  return options;
}

void add_options(cxxopts::Options& options, std::span<const Option> table,
                 const std::string& heading) {
  const auto value_of = [](const Option& option) -> std::shared_ptr<cxxopts::Value> {
    if (option.value == std::string_view(kSwitch)) {
      return cxxopts::value<bool>();
    }
    if (option.repeatable) {
      return cxxopts::value<std::vector<std::string>>();
    }
    const auto value = cxxopts::value<std::string>();
    return option.default_value == nullptr ? value : value->default_value(option.default_value);
  };
  cxxopts::OptionAdder add = options.add_options(heading);
  for (const Option& option : table) {
    add(option.names, option.help, value_of(option), option.value);
  }
}

void add_plugin_options(cxxopts::Options& options) {
  static constexpr Option kOptions[] = {
      {"plugin", "PATH", "libwarpfuse.so (default: beside this program, then ../lib)"},
      {"op-library", "PATH", "another operator library that a model needs; may be repeated",
       nullptr, true},
  };
  add_options(options, kOptions);
}

void add_tuning_option(cxxopts::Options& options) {
  static constexpr Option kOptions[] = {
      {"tuning", "F", "a table of the plugin's kernels, as `warpfuse tune` writes it"}};
  add_options(options, kOptions);
}

void add_device_option(cxxopts::Options& options) {
  static constexpr Option kOptions[] = {
      {"device", "DEVICE", "auto, cpu, cuda or cuda:<index>", "auto"},
      {"threads", "N", "threads on the CPU (default: as many as it has room for)"},
  };
  add_options(options, kOptions);
}

void add_help_option(cxxopts::Options& options) {
  static constexpr Option kOptions[] = {{"h,help", kSwitch, "show this help"}};
  add_options(options, kOptions);
}

}  // namespace warpfuse::host
