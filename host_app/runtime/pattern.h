#pragma once

#include <memory>
#include <string_view>
#include <vector>

namespace warpfuse::host {

// Splits text into the pieces that byte-level BPE works on, by GPT-2's pattern.
class Pattern {
 public:
  Pattern();

  // The pieces, views into `text`, cover it without gaps. Any bytes are accepted: a run of bytes
  // that is not UTF-8 is a piece of its own, and the text around it is split as if it ended there.
  std::vector<std::string_view> split(std::string_view text) const;

 private:
  struct Free {
    void operator()(void* code) const;
  };

  void split_valid(std::string_view text, std::vector<std::string_view>& pieces) const;

  std::unique_ptr<void, Free> code_;  // pcre2_code; its header stays out of this one
};

}  // namespace warpfuse::host
