#pragma once

// A value of a repeatable option may hold a comma; cxxopts would split it there.
#define CXXOPTS_VECTOR_DELIMITER '\0'
// Its own parser of arguments instead of <regex>, in which g++ 12 sees uninitialised values under
// -fsanitize.
#define CXXOPTS_NO_REGEX

#include <algorithm>
#include <cstdint>
#include <cxxopts.hpp>
#include <initializer_list>
#include <limits>
#include <span>

#include "runtime/load/session.h"

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

// Options under one heading of --help.
struct OptionTable {
  std::span<const Option> options;
  std::string heading = {};
};

// The options that several commands have.
inline constexpr Option kRewriteSwitch = {
    "rewrite", kSwitch, "route the model's softmax calls to the plugin when it is loaded"};
inline constexpr Option kPluginOptions[] = {
    {"plugin", "PATH", "libwarpfuse.so (default: beside this program, then ../lib)"},
    {"op-library", "PATH", "another operator library that a model needs; may be repeated", nullptr,
     true}};
inline constexpr Option kTuningOption[] = {
    {"tuning", "F", "a table of the plugin's kernels, as `warpfuse tune` writes it"}};
inline constexpr Option kThreadsOption = {
    "threads", "N", "threads on the CPU (default: as many as it has room for)"};
inline constexpr Option kDeviceOptions[] = {
    {"device", "DEVICE", "auto, cpu, cuda or cuda:<index>", "auto"}, kThreadsOption};

class Arguments;

struct Command {
  std::string name;          // one word or two
  std::string summary = {};  // of the program's --help; empty: it does not list the command
  std::string help, examples;
  std::string positional_help = {};
  std::vector<std::string> positionals = {};  // options that arguments without a dash fill, in turn
  std::vector<OptionTable> options;
  // Throws Error, and what libtorch throws.
  ExitCode (*run)(const Arguments& arguments);
};

// The parsed options of one command. Every complaint is an Error(usage) that names the option.
class Arguments {
 public:
  // `words`: the program's arguments, which begin with the command's name.
  Arguments(const Command& command, std::span<const char* const> words);

  bool has(const std::string& name) const { return result_.count(name) > 0; }
  // How many of these options were given.
  int64_t count(std::initializer_list<const char*> names) const {
    return std::ranges::count_if(names, [this](const char* name) { return has(name); });
  }

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

  // The text of --help.
  std::string help() const;
  std::string command_line() const;
  PluginOptions plugin_options() const;
  // --threads, where it was given.
  std::optional<int64_t> threads() const;

 private:
  // The option as a message names it: "-n, --tokens".
  std::string spelled(const std::string& name) const;

  const Command& command_;
  std::vector<std::string> words_;
  cxxopts::Options options_;
  cxxopts::ParseResult result_;
};

// The session of --device and the plugin's options.
Session open_session(const Arguments& arguments, const std::vector<Bundle>& bundles,
                     const std::vector<std::string>& operators);

}  // namespace warpfuse::host
