#include "runtime/text/escapes.h"

#include <charconv>

#include "runtime/errors.h"

namespace warpfuse::host {
namespace {

constexpr std::string_view kNames = "ntr\\\"'", kBytes = "\n\t\r\\\"'";

}  // namespace

std::string unescape(std::string_view text, std::string_view option) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      result += text[i];
      continue;
    }
    const std::string_view rest = text.substr(i + 1);
    if (rest.starts_with('x') && rest.size() >= 3) {
      unsigned char byte = 0;
      const char* const end = rest.data() + 3;
      if (std::from_chars(rest.data() + 1, end, byte, 16).ptr == end) {
        result += static_cast<char>(byte);
        i += 3;
        continue;
      }
    }
    const size_t known = rest.empty() ? std::string_view::npos : kNames.find(rest.front());
    if (known == std::string_view::npos) {
      fail(ExitCode::usage, "{}: expected \\n, \\t, \\r, \\\\, \\\", \\' or \\xHH, got '{}'",
           option, text.substr(i, rest.starts_with('x') ? 4 : 2));
    }
    result += kBytes[known];
    ++i;
  }
  return result;
}

}  // namespace warpfuse::host
