// A library whose static initialisation throws, as a TORCH_LIBRARY does that clashes with another.

#include <stdexcept>

namespace {

[[maybe_unused]] const int initialised = [] {
  throw std::runtime_error("this library throws");
  return 0;
}();

}  // namespace
