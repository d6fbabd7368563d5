#include "runtime/text/text_output.h"

#include <algorithm>
#include <utility>

namespace warpfuse::host {

std::string StopTexts::push(std::string_view bytes) {
  if (found_) {
    return "";
  }
  held_ += bytes;
  size_t first = std::string::npos;
  for (const std::string& text : texts_) {
    first = std::min(first, held_.find(text));
  }
  found_ = first != std::string::npos;
  const size_t shown = found_ ? first : held_.size() - undecided();
  std::string result = held_.substr(0, shown);
  held_.erase(0, found_ ? held_.size() : shown);
  return result;
}

std::string StopTexts::finish() { return std::exchange(held_, ""); }

// Length of the longest suffix of held_ that is a prefix of a stop text.
size_t StopTexts::undecided() const {
  size_t longest = 0;
  for (const std::string& text : texts_) {
    for (size_t length = std::min(text.size() - 1, held_.size()); length > longest; --length) {
      if (std::string_view(held_).ends_with(std::string_view(text).substr(0, length))) {
        longest = length;
      }
    }
  }
  return longest;
}

}  // namespace warpfuse::host
