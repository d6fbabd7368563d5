#pragma once

#include <c10/util/Exception.h>

#include <string>

/// What `call` throws: "IndexError: ..." or "Error: ..." with the message's first line, without a
/// backtrace; "no error" if nothing, "another exception" if it is no c10::Error.
template <typename Call>
std::string error_of(const Call& call) {
  const auto first_line = [](const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    return text.substr(0, text.find('\n'));
  };
  try {
    call();
  } catch (const c10::IndexError& error) {
    return "IndexError: " + first_line(error);
  } catch (const c10::Error& error) {
    return "Error: " + first_line(error);
  } catch (...) {
    return "another exception";
  }
  return "no error";
}
