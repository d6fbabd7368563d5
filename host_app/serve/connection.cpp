#include "serve/connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runtime/parse.h"

namespace warpfuse::host {
namespace {

constexpr size_t kBufferBytes = 4096;
constexpr std::chrono::milliseconds kKeepAlive{5000};
constexpr std::chrono::milliseconds kLookAround{100};  // how soon an idle one sees the server end

constexpr std::chrono::milliseconds kLastWait{50};
constexpr int kMaxLastReads = 256;

thread_local Connection* this_threads = nullptr;

bool wait_for(int socket, int16_t events, std::chrono::milliseconds patience) {
  pollfd waited{.fd = socket, .events = events, .revents = 0};
  const auto timeout = static_cast<int>(std::max<int64_t>(patience.count(), 0));
  int ready = 0;
  do {
    ready = poll(&waited, 1, timeout);
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

// None: chunks, or lengths on which two readers might disagree.
std::optional<size_t> body_bytes_of(const httplib::Request& request) {
  const size_t lengths = request.get_header_value_count("Content-Length");
  if (request.has_header("Transfer-Encoding") || lengths > 1) {
    return std::nullopt;
  }
  const std::string length = lengths == 0 ? "0" : request.get_header_value("Content-Length");
  return parse_number<size_t>(length);
}

// Once a head has been read.
void prepare(Connection& connection, httplib::Request& request) {
  connection.begin_body(body_bytes_of(request));
  // httplib would read such a body until the client closes.
  if (!request.has_header("Content-Length") && !request.has_header("Transfer-Encoding")) {
    request.set_header("Content-Length", "0");
  }
  // Answers are made anew each time, and a thousand ranges would send one a thousand times.
  request.ranges.clear();
  // A body is JSON, whatever its type says: httplib takes 8 KiB of a form, which curl -d says it
  // is.
  request.headers.erase("Content-Type");
}

}  // namespace

Connection::Connection(int socket, size_t max_request_bytes, std::chrono::seconds patience)
    : socket_(socket), max_request_bytes_(max_request_bytes), patience_(patience) {}

Connection* Connection::current() { return this_threads; }

bool Connection::next_request(std::chrono::milliseconds patience) {
  if (taken_ == buffer_.size() && !wait_for(socket_, POLLIN, patience)) {
    return false;
  }
  left_ = max_request_bytes_;
  end_.reset();
  deadline_ = Clock::now() + patience_;
  this_threads = this;
  return true;
}

void Connection::begin_body(std::optional<size_t> bytes) {
  end_ = bytes && *bytes <= left_ ? std::optional(left_ - *bytes) : std::nullopt;
}

bool Connection::gone() const {
  pollfd looked{.fd = socket_, .events = POLLRDHUP, .revents = 0};
  return poll(&looked, 1, 0) > 0;  // POLLERR and POLLHUP come unasked
}

bool Connection::is_readable() const { return taken_ < buffer_.size() || !gone(); }

bool Connection::is_writable() const { return !gone(); }

ssize_t Connection::read(char* data, size_t size) {
  size = std::min(size, left_);
  if (size == 0) {
    return -1;
  }
  if (taken_ == buffer_.size()) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now());
    if (!wait_for(socket_, POLLIN, left)) {
      return -1;
    }
    buffer_.resize(kBufferBytes);
    taken_ = 0;
    const ssize_t got = recv(socket_, buffer_.data(), buffer_.size(), 0);
    buffer_.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got <= 0) {
      return got;
    }
  }
  const size_t given = std::min(size, buffer_.size() - taken_);
  std::memcpy(data, buffer_.data() + taken_, given);
  taken_ += given;
  left_ -= given;
  return static_cast<ssize_t>(given);
}

// NOLINTNEXTLINE(readability-convert-member-functions-to-static)
ssize_t Connection::write(const char* data, size_t size) {
  const Clock::time_point deadline = Clock::now() + patience_;
  size_t sent = 0;
  while (sent < size) {
    const ssize_t got = send(socket_, data + sent, size - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (got >= 0) {
      sent += static_cast<size_t>(got);
    } else if (errno == EAGAIN) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
      if (left.count() <= 0 || !wait_for(socket_, POLLOUT, left)) {
        return -1;
      }
    } else if (errno != EINTR) {
      return -1;
    }
  }
  return static_cast<ssize_t>(size);
}

void Connection::get_remote_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}

void Connection::get_local_ip_and_port(std::string& ip, int& port) const {
  get_remote_ip_and_port(ip, port);
}

bool BoundedServer::run() {
  const bool ended = listen_after_bind();
  svr_sock_ = INVALID_SOCKET;  // it is closed by now
  return ended;
}

void BoundedServer::end() {
  if (const socket_t socket = svr_sock_.exchange(INVALID_SOCKET); socket != INVALID_SOCKET) {
    shutdown(socket, SHUT_RDWR);
    close(socket);
  }
}

bool BoundedServer::process_and_close_socket(socket_t socket) {
  Connection connection(socket, max_request_bytes_, patience_);
  bool ok = true;
  auto idle = std::chrono::milliseconds(0);
  while (ok && svr_sock_ != INVALID_SOCKET && idle < kKeepAlive) {
    if (!connection.next_request(kLookAround)) {
      idle += kLookAround;
      continue;
    }
    idle = idle.zero();
    bool closed = false;
    ok = process_request(connection, /*close_connection=*/false, closed,
                         [&](httplib::Request& request) { prepare(connection, request); }) &&
         !closed && connection.is_at_its_end();
  }
  this_threads = nullptr;
  // What is unread when a socket is closed makes the client lose the answer.
  shutdown(socket, SHUT_WR);
  std::string rest(kBufferBytes, '\0');
  for (int reads = 0; reads < kMaxLastReads && wait_for(socket, POLLIN, kLastWait); ++reads) {
    if (recv(socket, rest.data(), rest.size(), 0) <= 0) {
      break;
    }
  }
  close(socket);
  return ok;
}

}  // namespace warpfuse::host
