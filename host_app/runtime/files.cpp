#include "runtime/files.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>

#include "runtime/held_signals.h"
#include "runtime/parse.h"

namespace warpfuse::host {
namespace {

namespace fs = std::filesystem;

std::string last_error() { return std::error_code(errno, std::generic_category()).message(); }

void require_regular(const fs::path& path, std::string_view hint) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::is_regular_file(status)) {
    fail(ExitCode::model, "{}: cannot be read: {}{}", path.string(),
         error ? error.message() : "not a regular file", hint);
  }
}

// A regular file is replaced as a whole. A device or a pipe is written as it is, and a link too, so
// that it stays one.
bool is_written_in_place(const fs::path& path) {
  std::error_code ignored;
  const fs::file_status status = fs::symlink_status(path, ignored);
  return fs::exists(status) && !fs::is_regular_file(status);
}

// Where the replacement of a file is written first; no name of somebody else's file.
fs::path draft_of(const fs::path& path) {
  return fmt::format("{}.{}.part", path.string(), getpid());
}

struct Close {
  void operator()(std::FILE* file) const { static_cast<void>(std::fclose(file)); }
};

constexpr size_t kPieceBytes = size_t{16} << 20;  // written between two looks for a signal

// Gone with its name, unless it has another by then.
struct DraftFile {
  explicit DraftFile(fs::path named) : path(std::move(named)) {}
  ~DraftFile() {
    std::error_code ignored;
    fs::remove(path, ignored);
  }
  DraftFile(const DraftFile&) = delete;
  DraftFile& operator=(const DraftFile&) = delete;

  fs::path path;
};

// Writes the text to a file that messages call `path`.
void write_pieces(const fs::path& written, const fs::path& path, std::string_view text) {
  std::ofstream stream(written, std::ios::binary | std::ios::trunc);
  stream << text.substr(0, kPieceBytes);
  for (size_t at = kPieceBytes; stream && at < text.size(); at += kPieceBytes) {
    HeldSignals::check(path);
    stream << text.substr(at, kPieceBytes);
  }
  stream.close();
  if (!stream) {
    fail(ExitCode::output, "{}: cannot be written: {}", path.string(), last_error());
  }
}

}  // namespace

std::ifstream open_model_file(const fs::path& path) {
  require_regular(path, "");
  std::ifstream stream(path, std::ios::binary);
  if (!stream) {
    fail(ExitCode::model, "{}: cannot be read: {}", path.string(), last_error());
  }
  return stream;
}

std::string read_model_file(const fs::path& path, std::string_view hint) {
  require_regular(path, hint);
  return read_file(path, ExitCode::model);
}

nlohmann::json read_json_object(const fs::path& path, std::string_view hint) {
  nlohmann::json root = parse_json(read_model_file(path, hint), ExitCode::model, path.string());
  if (!root.is_object()) {
    fail(ExitCode::model, "{}: expected a JSON object", path.string());
  }
  return root;
}

std::string read_file(const fs::path& path, ExitCode code) {
  const bool standard = path == "-";
  const std::string name = standard ? "stdin" : path.string();
  const std::unique_ptr<std::FILE, Close> opened(standard ? nullptr
                                                          : std::fopen(path.c_str(), "rb"));
  std::FILE* const file = standard ? stdin : opened.get();
  std::string text;
  std::array<char, 65536> piece{};
  while (file != nullptr && std::feof(file) == 0 && std::ferror(file) == 0) {
    text.append(piece.data(), std::fread(piece.data(), 1, piece.size(), file));
  }
  if (file == nullptr || std::ferror(file) != 0) {
    fail(code, "{}: cannot be read: {}", name, last_error());
  }
  return text;
}

void require_replaceable(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    fail(ExitCode::output, "{}: cannot be written: a folder", path.string());
  }
  if (is_written_in_place(path)) {
    return;  // such as a pipe, whose reader would see that it is opened
  }
  const HeldSignals held;
  const fs::path tried = draft_of(path);
  if (!std::ofstream(tried, std::ios::binary | std::ios::app)) {
    fail(ExitCode::output, "{}: cannot be written: {}", path.string(), last_error());
  }
  fs::remove(tried, error);
}

void replace_file(const fs::path& path, std::string_view text) {
  if (is_written_in_place(path)) {
    write_pieces(path, path, text);  // a signal ends the wait for the reader of a pipe
    return;
  }
  const HeldSignals held;
  const DraftFile draft{draft_of(path)};
  write_pieces(draft.path, path, text);
  std::error_code error;
  if (const fs::file_status old = fs::status(path, error); fs::is_regular_file(old)) {
    fs::permissions(draft.path, old.permissions(), error);
  }
  fs::rename(draft.path, path, error);
  if (error) {
    fail(ExitCode::output, "{}: cannot be written: {}", path.string(), error.message());
  }
}

}  // namespace warpfuse::host
