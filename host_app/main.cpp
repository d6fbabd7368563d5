#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string_view>

#include "commands/commands.h"
#include "runtime/errors.h"
#include "runtime/plugin.h"

namespace {

using warpfuse::host::Command;
using warpfuse::host::ExitCode;
using warpfuse::host::kCommands;

void print_help() {
  fmt::print(
      "warpfuse runs traced models on libtorch with the fused operators of libwarpfuse.so.\n\n"
      "Usage: warpfuse <command> [options]\n\nCommands:\n");
  for (const Command& command : kCommands) {
    fmt::print("  {:<12}{}\n", command.name, command.summary);
  }
  fmt::print(
      "\n'warpfuse <command> --help' shows a command's options.\n\nExamples:\n"
      "  warpfuse generate -m bundles/wikitext-small/fused-float32 -p \"The river\" -n 64\n"
      "  warpfuse verify bundles/wikitext-small/fused-float32 "
      "bundles/wikitext-small/baseline-float32\n"
      "  warpfuse info\n\nExit codes:\n");
  for (const auto& [code, meaning] : warpfuse::host::kExitCodes) {
    fmt::print("  {}  {}\n", static_cast<int>(code), meaning);
  }
}

ExitCode run(int argc, const char* const* argv) {
  if (argc < 2) {
    warpfuse::host::fail(ExitCode::usage, "no command (see warpfuse --help)");
  }
  const std::string_view name = argv[1];
  if (name == "--help" || name == "-h" || name == "help") {
    print_help();
    return ExitCode::ok;
  }
  if (name == "--version") {
    fmt::print("warpfuse {} (built against libtorch {})\n", WARPFUSE_VERSION,
               warpfuse::host::kBuiltLibtorch);
    return ExitCode::ok;
  }
  const auto command =
      std::ranges::find_if(kCommands, [&](const Command& known) { return known.name == name; });
  if (command == kCommands.end()) {
    warpfuse::host::fail(ExitCode::usage, "unknown {} '{}' (see warpfuse --help)",
                         name.starts_with('-') ? "option" : "command", name);
  }
  return command->run(argc - 1, argv + 1);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return static_cast<int>(run(argc, argv));
  } catch (...) {
    const auto [code, message] =
        warpfuse::host::describe(std::current_exception(), ExitCode::check_failed);
    std::fflush(stdout);
    fmt::print(stderr, "warpfuse: error: {}\n", message);
    return static_cast<int>(code);
  }
}
