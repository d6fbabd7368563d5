#include "commands/arguments.h"

#include <fmt/ranges.h>

#include <cctype>
#include <cmath>
#include <iterator>
#include <map>
#include <memory>

#include "runtime/parse.h"

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
// a slash or a dot in it. A value of a switch is refused: it would be on, whatever that says.
std::vector<std::string> with_values_apart(const cxxopts::Options& options,
                                           std::vector<std::string> arguments) {
  std::map<std::string, bool> is_switch;  // by "-m" and "--model"
  for_each_option(options, [&](const cxxopts::HelpOptionDetails& option) {
    is_switch["--" + option.l.front()] = option.is_boolean;
    if (!option.s.empty()) {
      is_switch["-" + option.s] = option.is_boolean;
    }
  });
  for (size_t i = 1; i < arguments.size() && arguments[i] != "--"; ++i) {
    const std::string given = arguments[i];
    const bool is_long = given.starts_with("--");
    const std::string name = given.substr(0, is_long ? given.find('=') : 2);
    const auto option = is_switch.find(name);
    if (option == is_switch.end()) {
      continue;
    }
    if (option->second) {
      if (is_long && given != name) {
        fail(ExitCode::usage, "{}: expected no value, as it is a switch, got '{}'", name,
             given.substr(name.size() + 1));
      }
      continue;
    }
    if (!is_long && given != name) {
      arguments[i] = name;
      arguments.insert(arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1, given.substr(2));
    }
    i += is_long && given != name ? 0 : 1;  // over the value, whatever it looks like
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

cxxopts::ParseResult parse(cxxopts::Options& options, std::vector<std::string> words) {
  const std::vector<std::string> arguments = with_values_apart(options, std::move(words));
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

cxxopts::Options options_of(const Command& command) {
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
  cxxopts::Options options("warpfuse " + command.name, command.help);
  for (const auto& [table, heading] : command.options) {
    for (const Option& option : table) {
      options.add_options(heading)(option.names, option.help, value_of(option), option.value);
    }
  }
  options.add_options()("h,help", "show this help");
  options.parse_positional(command.positionals);
  options.positional_help(command.positional_help);
  return options;
}

constexpr int64_t kMaxThreads = 4096;

}  // namespace

Arguments::Arguments(const Command& command, std::span<const char* const> words)
    : command_(command), words_(words.begin(), words.end()), options_(options_of(command)) {
  const auto in_name = std::ranges::count(command.name, ' ');  // cxxopts skips the last word of it
  result_ = parse(options_, {words_.begin() + in_name, words_.end()});
}

std::string Arguments::help() const {
  return fmt::format("{}\nExamples:\n{}", options_.help(), command_.examples);
}

std::string Arguments::command_line() const {
  return fmt::format("warpfuse {}", fmt::join(words_, " "));
}

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
    const std::vector<std::string>& positionals = command_.positionals;
    if (std::ranges::find(positionals, name) != positionals.end()) {
      std::string names = fmt::format("{}", fmt::join(positionals, ", "));
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
  const std::optional<int64_t> value = parse_number(given);
  if (!value || *value < low || *value > high) {
    const std::string expected = low == high ? std::to_string(low)
                                 : high == std::numeric_limits<int64_t>::max()
                                     ? fmt::format("an integer of at least {}", low)
                                     : fmt::format("an integer of {}..{}", low, high);
    fail(ExitCode::usage, "{}: expected {}, got '{}'", spelled(name), expected, given);
  }
  return *value;
}

double Arguments::number(const std::string& name, double low, double high) const {
  const std::string given = text(name);
  const std::optional<double> value = parse_number<double>(given);
  if (!value || !std::isfinite(*value) || *value < low || *value > high) {
    if (std::isinf(high)) {
      fail(ExitCode::usage, "{}: expected a number of at least {}, got '{}'", spelled(name), low,
           given);
    }
    fail(ExitCode::usage, "{}: expected a number of {}..{}, got '{}'", spelled(name), low, high,
         given);
  }
  return *value;
}

std::vector<std::string> Arguments::texts(const std::string& name) const {
  return has(name) ? result_[name].as<std::vector<std::string>>() : std::vector<std::string>();
}

std::optional<int64_t> Arguments::threads() const {
  return has("threads") ? std::optional(integer("threads", 1, kMaxThreads)) : std::nullopt;
}

PluginOptions Arguments::plugin_options() const {
  const bool with_table = std::ranges::any_of(command_.options, [](const OptionTable& table) {
    return table.options.data() == kTuningOption;
  });
  return {.plugin = optional_text("plugin"),
          .op_libraries = texts("op-library"),
          .tuning = with_table ? optional_text("tuning") : std::nullopt};
}

Session open_session(const Arguments& arguments, const std::vector<Bundle>& bundles,
                     const std::vector<std::string>& operators) {
  return open_session(arguments.plugin_options(), arguments.text("device"), bundles, operators);
}

}  // namespace warpfuse::host
