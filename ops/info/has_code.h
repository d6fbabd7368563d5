#pragma once

#include <algorithm>
#include <charconv>
#include <string_view>

namespace warpfuse {

/// Whether a library that was built for these architectures has code for a GPU of a compute
/// capability. The driver knows too, but to ask it takes a context on that GPU, and memory.
///   "8.0"      machine code, for this GPU and those of its major version with a higher minor one
///   "10.0f"    the same, with the instructions of the family
///   "9.0a"     machine code for this GPU alone
///   "12.0+PTX" also PTX, which the driver translates for this GPU and every newer one; that of
///              "a" and "f" is for the GPUs of their machine code
/// `architectures` are such entries, separated by commas.
inline bool has_code_for(std::string_view architectures, int major, int minor) {
  while (!architectures.empty()) {
    const size_t comma = architectures.find(',');
    std::string_view entry = architectures.substr(0, comma);
    architectures = comma == std::string_view::npos ? "" : architectures.substr(comma + 1);
    entry.remove_prefix(std::min(entry.find_first_not_of(' '), entry.size()));

    int of_major = -1, of_minor = -1;
    const char* end = entry.data() + entry.size();
    const char* at = std::from_chars(entry.data(), end, of_major).ptr;
    if (at != end && *at == '.') {
      at = std::from_chars(at + 1, end, of_minor).ptr;
    }
    const std::string_view suffix(at, static_cast<size_t>(end - at));
    const bool alone = suffix.starts_with('a'), family = suffix.starts_with('f');
    const bool ptx = suffix.ends_with("+PTX") && !alone && !family;
    if (major == of_major ? (alone ? minor == of_minor : minor >= of_minor)
                          : ptx && major > of_major) {
      return true;
    }
  }
  return false;
}

}  // namespace warpfuse
