#include "runtime/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include "runtime/errors.h"
#include "runtime/utf8.h"

namespace warpfuse::host {
namespace {

// GPT-2's pattern. White space is spelled out as Unicode's White_Space property, which is what \s
// means to the original; PCRE2's own \s with PCRE2_UCP has U+180E in addition.
#define WHITE_SPACE R"(\p{Z}\t-\r\x{85})"
constexpr char kPattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^)" WHITE_SPACE R"(\p{L}\p{N}]+|[)" WHITE_SPACE
    R"(]+(?![^)" WHITE_SPACE R"(])|[)" WHITE_SPACE R"(]+)";
#undef WHITE_SPACE

const pcre2_code* as_code(const void* code) { return static_cast<const pcre2_code*>(code); }

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

// Length of the longest prefix that is valid UTF-8 (`valid`) or has no valid code point in it.
size_t run_length(std::string_view text, bool valid) {
  size_t length = 0;
  while (length < text.size()) {
    const Utf8Unit unit = next_utf8_unit(text.substr(length));
    if ((unit.kind == Utf8Unit::Kind::complete) != valid) {
      break;
    }
    length += unit.length;
  }
  return length;
}

}  // namespace

void Pattern::Free::operator()(void* code) const {
  pcre2_code_free(static_cast<pcre2_code*>(code));
}

Pattern::Pattern() {
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(kPattern), PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF, &error, &offset, nullptr));
  if (!code_) {
    fail(ExitCode::check_failed, "PCRE2 refuses GPT-2's pattern: {}", message_of(error));
  }
  // Without JIT support in this PCRE2 the matches are slower, not different.
  pcre2_jit_compile(static_cast<pcre2_code*>(code_.get()), PCRE2_JIT_COMPLETE);
}

void Pattern::split_valid(std::string_view text, std::vector<std::string_view>& pieces) const {
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(
      pcre2_match_data_create_from_pattern(as_code(code_.get()), nullptr));
  size_t start = 0;
  while (start < text.size()) {
    const int matched = pcre2_match(as_code(code_.get()), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                    text.size(), start, PCRE2_NO_UTF_CHECK, match.get(), nullptr);
    if (matched < 0) {
      fail(ExitCode::check_failed, "splitting text: {}", message_of(matched));
    }
    // Every code point is in one of the alternatives, so matches follow one another without a gap.
    const size_t end = pcre2_get_ovector_pointer(match.get())[1];
    pieces.push_back(text.substr(start, end - start));
    start = end;
  }
}

std::vector<std::string_view> Pattern::split(std::string_view text) const {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const size_t valid = run_length(text, true);
    split_valid(text.substr(0, valid), pieces);
    text.remove_prefix(valid);
    const size_t invalid = run_length(text, false);
    if (invalid > 0) {
      pieces.push_back(text.substr(0, invalid));
    }
    text.remove_prefix(invalid);
  }
  return pieces;
}

}  // namespace warpfuse::host
