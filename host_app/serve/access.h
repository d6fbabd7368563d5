#pragma once

#include <stdexcept>
#include <string>

namespace warpfuse::host {

// A request that is not served, in the words of OpenAI's protocol.
struct ApiError : std::runtime_error {
  ApiError(int http_status, const std::string& message, std::string parameter = "",
           std::string error_code = "")
      : std::runtime_error(message),
        status(http_status),
        param(std::move(parameter)),
        code(std::move(error_code)) {}

  int status;
  std::string param;  // the parameter that is wrong; empty: none
  std::string code;   // empty: none
};

// Who may use the server.
struct Access {
  std::string host;     // the address that it is bound to
  std::string api_key;  // empty: none is asked for

  // Only this machine can reach the address.
  bool is_loopback() const;

  // Throws ApiError(403) for a request that a page of another site may have made a browser send:
  // on a loopback address the Host must name this machine, so that no name that an attacker's DNS
  // points here will do, and an Origin must be the Host. Empty: the header is missing.
  void require_same_site(const std::string& host_header, const std::string& origin) const;
  // Throws ApiError(401) when the header Authorization does not hold the key.
  void require_key(const std::string& authorization) const;
};

}  // namespace warpfuse::host
