#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/utf8.h"

namespace warpfuse::host {

// Looks for the first of several texts in bytes that come in pieces. A possible start of one is
// held back; once one is whole, neither it nor anything after it comes out.
class StopTexts {
 public:
  explicit StopTexts(std::vector<std::string> texts) : texts_(std::move(texts)) {}

  // Returns the bytes that can be shown.
  std::string push(std::string_view bytes);
  bool found() const { return found_; }
  // Returns the bytes still held back; no more will come.
  std::string finish();

 private:
  size_t undecided() const;

  std::vector<std::string> texts_;
  std::string held_;
  bool found_ = false;
};

// The text of one continuation, as its tokens come.
class TextOutput {
 public:
  explicit TextOutput(std::vector<std::string> stop_texts) : stops_(std::move(stop_texts)) {}

  // The prompt, in which no stop text is looked for.
  std::string show(std::string_view prompt) { return utf8_.push(prompt); }
  std::string push(std::string_view bytes) { return utf8_.push(stops_.push(bytes)); }
  bool stopped() const { return stops_.found(); }
  std::string finish() { return utf8_.push(stops_.finish()) + utf8_.finish(); }

 private:
  StopTexts stops_;
  Utf8Stream utf8_;
};

}  // namespace warpfuse::host
