#pragma once

#include <fmt/format.h>

#include <array>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace warpfuse::host {

enum class ExitCode : int {
  ok = 0,
  check_failed = 1,
  usage = 2,
  model = 3,
  plugin = 4,
  device = 5,
  output = 6,
  interrupted = 130
};

// The one table of exit codes; --help prints it.
inline constexpr std::array<std::pair<ExitCode, std::string_view>, 8> kExitCodes{{
    {ExitCode::ok, "success"},
    {ExitCode::check_failed,
     "a check failed (verify: a difference; selftest, bench, tune: a wrong result; bench: slower "
     "than the baseline; rewrite: fewer calls than --require), or an internal error"},
    {ExitCode::usage, "usage: unknown command or option, bad value, unreadable input"},
    {ExitCode::model,
     "model: bundle or tokenizer missing or damaged, prompt longer than the context"},
    {ExitCode::plugin, "plugin: not found, not loadable, wrong version, operator missing"},
    {ExitCode::device, "device: no such GPU, no kernel for it, out of memory"},
    {ExitCode::output, "output: stdout or a file could not be written"},
    {ExitCode::interrupted, "interrupted; what was generated or measured until then is kept"},
}};

// An expected failure: one line for the user and the exit code of the process.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

template <typename... Args>
[[noreturn]] void fail(ExitCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

// The cause in a libtorch message: its first line, or, for an error inside TorchScript code (whose
// first lines are the model's source), the error that stopped it.
std::string one_line(std::string_view message);

struct Failure {
  ExitCode code;
  std::string message;  // one line
};

bool is_out_of_memory(const std::exception_ptr& exception);

// Never throws; anything that is not an Error is given `otherwise`, or ExitCode::device when CUDA
// failed or there is no memory left.
Failure describe(const std::exception_ptr& exception, ExitCode otherwise);

// Runs `action`; what libtorch or the standard library throws becomes Error(otherwise, "context:
// line").
template <typename Action>
auto translating_errors(ExitCode otherwise, std::string_view context, Action&& action) {
  try {
    return action();
  } catch (const Error&) {
    throw;
  } catch (...) {
    const Failure failure = describe(std::current_exception(), otherwise);
    throw Error(failure.code, fmt::format("{}: {}", context, failure.message));
  }
}

}  // namespace warpfuse::host
