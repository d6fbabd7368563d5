#pragma once

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <string>

/// What `call` throws: "IndexError: ..." or "Error: ..." with the message's first line, without a
/// backtrace; "no error" if nothing, "another exception" if it is no c10::Error.
template <typename Call>
std::string error_of(const Call& call) {
  const auto first_line = [](const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    return text.substr(0, text.find('\n'));
  };
  try {
    call();
  } catch (const c10::IndexError& error) {
    return "IndexError: " + first_line(error);
  } catch (const c10::Error& error) {
    return "Error: " + first_line(error);
  } catch (...) {
    return "another exception";
  }
  return "no error";
}

/// What a backward says that has saved `tensor`, which `write` changes before it runs.
template <typename Write>
std::string error_of_backward_after(const Write& write, const at::Tensor& tensor) {
  const at::Tensor weight = at::ones({}, tensor.options()).requires_grad_();
  const at::Tensor sum = (weight * tensor).sum();
  write();
  return error_of([&] { sum.backward(); });
}
