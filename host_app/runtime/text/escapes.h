#pragma once

#include <string>
#include <string_view>

namespace warpfuse::host {

// Replaces the escapes \n, \t, \r, \\, \", \' and \xHH (a byte, two hexadecimal digits): a shell
// passes a backslash on as it is. Throws Error(usage), which begins with `option`, for any other
// backslash.
std::string unescape(std::string_view text, std::string_view option);

}  // namespace warpfuse::host
