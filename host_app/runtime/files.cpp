#include "runtime/files.h"

#include <iterator>

namespace warpfuse::host {

std::ifstream open_file(const std::filesystem::path& path, ExitCode code, std::string_view hint) {
  std::error_code ignored;
  std::ifstream stream(path, std::ios::binary);
  if (!stream || std::filesystem::is_directory(path, ignored)) {
    fail(code, "{}: cannot be read{}", path.string(), hint);
  }
  return stream;
}

std::string read_file(const std::filesystem::path& path, ExitCode code) {
  std::ifstream stream = open_file(path, code);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

void replace_file(const std::filesystem::path& path, std::string_view text) {
  const std::filesystem::path beside = path.string() + ".part";
  std::ofstream stream(beside, std::ios::binary | std::ios::trunc);
  stream << text;
  stream.close();
  std::error_code error;
  if (stream) {
    std::filesystem::rename(beside, path, error);
  }
  if (!stream || error) {
    fail(ExitCode::usage, "{}: cannot be written", path.string());
  }
}

}  // namespace warpfuse::host
