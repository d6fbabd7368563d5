
#include <csignal>
#include <cstdlib>

#include "commands/commands.h"
#include "runtime/output.h"

namespace {

using namespace warpfuse::host;

void print_help() {
  print(
      "warpfuse runs traced models on libtorch with the fused operators of libwarpfuse.so.\n\n"
      "Usage: warpfuse <command> [options]\n\nCommands:\n");
  for (const auto make : kCommands) {
    if (const Command command = make(); !command.summary.empty()) {
      print("  {:<12}{}\n", command.name, command.summary);
    }
  }
  print(
      "\n'warpfuse <command> --help' shows a command's options.\n\nExamples:\n"
      "  warpfuse generate -m bundles/wikitext-small/fused-float32 -p \"The river\" -n 64\n"
      "  warpfuse verify bundles/wikitext-small/fused-float32 "
      "bundles/wikitext-small/baseline-float32\n"
      "  warpfuse info\n\nExit codes:\n");
  for (const auto& [code, meaning] : kExitCodes) {
    print("  {}  {}\n", static_cast<int>(code), meaning);
  }
}

ExitCode run(int argc, const char* const* argv) {
  if (argc < 2) {
    fail(ExitCode::usage, "no command (see warpfuse --help)");
  }
  const std::string_view name = argv[1];
  if (name == "--help" || name == "-h" || name == "help") {
    print_help();
    return ExitCode::ok;
  }
  if (name == "--version") {
    print("warpfuse {} (built against libtorch {})\n", WARPFUSE_VERSION, kBuiltLibtorch);
    return ExitCode::ok;
  }
  const std::span words(argv + 1, argv + argc);
  const std::string two = words.size() > 1 ? fmt::format("{} {}", words[0], words[1]) : "";
  for (const auto make : kCommands) {
    const Command command = make();
    if (command.name == name || command.name == two) {
      const Arguments arguments(command, words);
      if (arguments.has("help")) {
        print("{}", arguments.help());
        return ExitCode::ok;
      }
      return command.run(arguments);
    }
  }
  fail(ExitCode::usage, "unknown {} '{}' (see warpfuse --help)",
       name.starts_with('-') ? "option" : "command", name);
}

// One line on stderr, and the exit code. The failure may be a lack of the memory that this takes.
int report(const std::exception_ptr& failure) noexcept {
  try {
    Failure told = describe(failure, ExitCode::check_failed);
    if (told.code != ExitCode::output) {
      try {
        flush_output();
      } catch (...) {
        told = describe(std::current_exception(), ExitCode::output);
      }
    }
    print_error("warpfuse: error: {}\n", told.message);
    return static_cast<int>(told.code);
  } catch (...) {
    write_error("warpfuse: error: out of memory\n");
    return static_cast<int>(ExitCode::device);
  }
}

// An exception that nobody can catch: libtorch's own initialisers throw where memory is short.
[[noreturn]] void tell_and_end() {
  const std::exception_ptr failure = std::current_exception();
  std::_Exit(failure ? report(failure) : static_cast<int>(ExitCode::check_failed));
}

// Runs before the initialisers of shared libraries do.
void install_handler() { std::set_terminate(tell_and_end); }
[[gnu::used, gnu::section(".preinit_array")]] void (*const install_early)() = install_handler;

}  // namespace

int main(int argc, char** argv) {
  hold_standard_streams();
  static_cast<void>(std::signal(SIGXFSZ, SIG_IGN));  // a file over the limit fails as a full disk
  setenv("THP_MEM_ALLOC_ENABLE", "1", /*overwrite=*/0);  // libtorch asks for huge pages
  try {
    const ExitCode code = run(argc, argv);
    flush_output();
    return static_cast<int>(code);
  } catch (...) {
    return report(std::current_exception());
  }
}
