#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <istream>
#include <string>
#include <string_view>

namespace warpfuse::host {

// SHA-256 (FIPS 180-4), fed in pieces of any size.
class Sha256 {
 public:
  void update(std::string_view bytes);
  // Pads and returns the digest as 64 lower-case hexadecimal digits; the object is spent
  // afterwards.
  std::string hex_digest();

 private:
  static constexpr size_t kBlockBytes = 64;

  void compress(const uint8_t* block);

  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, kBlockBytes> pending_{};
  size_t pending_size_ = 0;
  uint64_t total_bytes_ = 0;
};

// Reads the stream to its end.
std::string sha256_hex(std::istream& stream);

}  // namespace warpfuse::host
