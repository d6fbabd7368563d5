#pragma once

#include <string>

namespace warpfuse::host {

// Who may use the server.
struct Access {
  std::string host;     // the address that it is bound to
  std::string api_key;  // empty: none is asked for

  // The server's, with the host in brackets where it is an address of IPv6.
  std::string url(int port) const;

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
