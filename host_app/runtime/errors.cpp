#include "runtime/errors.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <new>

namespace warpfuse::host {
namespace {

constexpr std::string_view kScriptPreamble =
    "The following operation failed in the TorchScript interpreter";
constexpr std::string_view kScriptError = "RuntimeError: ";

std::string_view first_line(std::string_view text) {
  const size_t start = text.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos) {
    return "unknown error";
  }
  text.remove_prefix(start);
  text = text.substr(0, text.find_first_of("\r\n"));
  return text.substr(0, text.find_last_not_of(" \t") + 1);
}

// libtorch reports a lack of CPU memory, and a size that no memory has, in exceptions of no type of
// their own.
constexpr std::string_view kCpuMemory = "DefaultCPUAllocator: ";
constexpr std::string_view kNoSize = "Storage size calculation overflowed";

}  // namespace

bool is_out_of_memory(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const c10::OutOfMemoryError&) {
    return true;
  } catch (const std::bad_alloc&) {
    return true;
  } catch (const std::exception& error) {
    const std::string_view message = error.what();
    return message.find(kCpuMemory) != std::string_view::npos || message.starts_with(kNoSize);
  } catch (...) {
    return false;
  }
}

std::string one_line(std::string_view message) {
  if (message.find(kScriptPreamble) != std::string_view::npos) {
    if (const size_t at = message.rfind(kScriptError); at != std::string_view::npos) {
      message.remove_prefix(at + kScriptError.size());
    }
  }
  return std::string(first_line(message));
}

Failure describe(const std::exception_ptr& exception, ExitCode otherwise) {
  const auto classified = [&](std::string_view message) {
    std::string line = one_line(message);
    if (const size_t at = line.find(kCpuMemory); at != std::string::npos) {
      return Failure{ExitCode::device, "out of memory: " + line.substr(at + kCpuMemory.size())};
    }
    if (line.starts_with(kNoSize)) {
      return Failure{ExitCode::device, "out of memory: " + line};
    }
    // TorchScript's interpreter turns every exception into std::runtime_error, so its text is what
    // is left to go by.
    const ExitCode code = line.starts_with("CUDA ") ? ExitCode::device : otherwise;
    return Failure{code, std::move(line)};
  };
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    std::string whole = error.what();  // a name in it may have a line break
    std::ranges::replace_if(whole, [](char c) { return c == '\n' || c == '\r'; }, ' ');
    return {error.code(), std::move(whole)};
  } catch (const c10::OutOfMemoryError& error) {
    return {ExitCode::device, one_line(error.what_without_backtrace())};
  } catch (const c10::Error& error) {
    return classified(error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return {ExitCode::device, "out of memory"};
  } catch (const std::exception& error) {
    return classified(error.what());
  } catch (...) {
    return {otherwise, "unknown error"};
  }
}

}  // namespace warpfuse::host
