#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace warpfuse::host {

// GPT-2's vocabulary files write each byte as one printable character; this reads them back.
// Empty when `written` has a character outside that alphabet.
std::optional<std::string> bytes_of_written_token(std::string_view written);

}  // namespace warpfuse::host
