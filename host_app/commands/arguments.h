#pragma once

// A value of a repeatable option may hold a comma; cxxopts would split it there.
#define CXXOPTS_VECTOR_DELIMITER '\0'
// Its own parser of arguments instead of <regex>, in which g++ 12 sees uninitialised values under
// -fsanitize.
#define CXXOPTS_NO_REGEX

#include <cstdint>
#include <cxxopts.hpp>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/load/plugin.h"

namespace warpfuse::host {

// An option of a command; one without a value's name is a switch. Numbers are checked by Arguments,
// whose messages name the option.
struct Option {
  const char* names;  // "long", or "s,long"
  const char* value;  // its name in --help, such as "FILE"
  const char* help;
  const char* default_value = nullptr;
  bool repeatable = false;
};
inline constexpr const char* kSwitch = "";

// The parsed options of one command. Every complaint is an Error(usage) that names the option.
class Arguments {
 public:
  // `positionals`: the options that arguments without a dash fill, in this order.
  Arguments(cxxopts::Options options, std::initializer_list<std::string> positionals, int argc,
            const char* const* argv);

  bool has(const std::string& name) const { return result_.count(name) > 0; }
  // The value or the option's default; an option that has neither must be given.
  std::string text(const std::string& name) const;
  // The value of an option that need not be given.
  std::optional<std::string> optional_text(const std::string& name) const;
  int64_t integer(const std::string& name, int64_t low,
                  int64_t high = std::numeric_limits<int64_t>::max()) const;
  double number(const std::string& name, double low,
                double high = std::numeric_limits<double>::infinity()) const;
  // Every value of an option that may be repeated.
  std::vector<std::string> texts(const std::string& name) const;

  // True when --help was given; the text is then on stdout.
  bool help_shown(const std::string& examples) const;

  // with_table: --tuning, where the command has it, is for the library to take.
  PluginOptions plugin_options(bool with_table = true) const;
  // --threads, where it was given.
  std::optional<int64_t> threads() const;

 private:
  // The option as a message names it: "-n, --tokens".
  std::string spelled(const std::string& name) const;

  cxxopts::Options options_;
  std::vector<std::string> positionals_;
  cxxopts::ParseResult result_;
};

// The switch of commands that run a model.
inline constexpr Option kRewriteSwitch = {
    "rewrite", kSwitch, "route the model's softmax calls to the plugin when it is loaded"};

// Adds a table of options, under a heading of --help.
void add_options(cxxopts::Options& options, std::span<const Option> table,
                 const std::string& heading = "");

// The options that several commands have.
void add_plugin_options(cxxopts::Options& options);
// --tuning of commands that run with a table and do not measure one.
void add_tuning_option(cxxopts::Options& options);
void add_device_option(cxxopts::Options& options);
void add_help_option(cxxopts::Options& options);

}  // namespace warpfuse::host
