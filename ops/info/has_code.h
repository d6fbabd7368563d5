#pragma once

#include <algorithm>
#include <string_view>

namespace warpfuse {

/// Removes a number from the front of a text and returns it.
inline int take_number(std::string_view& text) {
  int number = 0;
  for (; !text.empty() && text.front() >= '0' && text.front() <= '9'; text.remove_prefix(1)) {
    number = 10 * number + (text.front() - '0');
  }
  return number;
}

/// Whether a library that was built for these architectures has code for a GPU of a compute
/// capability. Asking the driver would make a context on that GPU, which takes memory.
///   "8.0"      machine code, for this GPU and those of its major version with a higher minor one
///   "10.0f"    the same, with the instructions of the family
///   "9.0a"     machine code for this GPU alone
///   "12.0+PTX" also PTX, which the driver translates for this GPU and every newer one; that of
///              "a" and "f" is for the GPUs of their machine code
/// `architectures` are such entries, separated by commas and spaces.
inline bool has_code_for(std::string_view architectures, int major, int minor) {
  while (!architectures.empty()) {
    std::string_view entry = architectures.substr(0, architectures.find_first_of(", "));
    architectures.remove_prefix(std::min(entry.size() + 1, architectures.size()));
    const int entry_major = take_number(entry);
    entry.remove_prefix(std::min<size_t>(1, entry.size()));
    const int entry_minor = take_number(entry);
    const bool alone = entry.starts_with('a'), family = entry.starts_with('f');
    const bool ptx = entry.ends_with("+PTX") && !alone && !family;
    if (major == entry_major ? (alone ? minor == entry_minor : minor >= entry_minor)
                             : ptx && major > entry_major) {
      return true;
    }
  }
  return false;
}

}  // namespace warpfuse
