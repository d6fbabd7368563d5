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

}  // namespace warpfuse::host
