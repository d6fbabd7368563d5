#include "serve/access.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "serve/api_error.h"

namespace warpfuse::host {
namespace {

std::string name_in(const std::string& host_header) {
  const size_t colon = host_header.rfind(':');
  const bool has_port =
      colon != std::string::npos && host_header.find(']', colon) == std::string::npos;
  std::string name = host_header.substr(0, has_port ? colon : std::string::npos);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

}  // namespace

std::string Access::url(int port) const {
  const bool has_colons = host.find(':') != std::string::npos;
  return "http://" + (has_colons ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

bool Access::is_loopback() const {
  const bool is_number = host.find_first_not_of("0123456789.") == std::string::npos;
  return host == "localhost" || host == "::1" || (is_number && host.starts_with("127."));
}

void Access::require_same_site(const std::string& host_header, const std::string& origin) const {
  static constexpr std::array<std::string_view, 3> kOwnNames{"localhost", "127.0.0.1", "[::1]"};
  const std::string name = name_in(host_header);
  if (is_loopback() && name != host && std::ranges::find(kOwnNames, name) == kOwnNames.end()) {
    throw ApiError(403, "the header Host does not name this machine");
  }
  if (!origin.empty() && origin != "http://" + host_header && origin != "https://" + host_header) {
    throw ApiError(403, "the header Origin is another site's");
  }
}

void Access::require_key(const std::string& authorization) const {
  if (api_key.empty()) {
    return;
  }
  const std::string expected = "Bearer " + api_key;
  if (authorization.size() != expected.size() ||
      CRYPTO_memcmp(authorization.data(), expected.data(), expected.size()) != 0) {
    throw ApiError(401, "the header Authorization does not hold the API key of this server", "",
                   "invalid_api_key");
  }
}

}  // namespace warpfuse::host
