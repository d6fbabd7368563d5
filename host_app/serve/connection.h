#pragma once

// As Debian builds its library: the layout of the library's classes depends on it.
#define CPPHTTPLIB_OPENSSL_SUPPORT
#include <httplib.h>

#include <chrono>
#include <optional>
#include <string>

namespace warpfuse::host {

// A client's connection with bounds on what it may send, and for how long. httplib's own stream has
// none for a request as a whole: a header without end or a byte per second would hold its thread.
class Connection : public httplib::Stream {
 public:
  Connection(int socket, size_t max_request_bytes, std::chrono::seconds patience);

  // The connection that this thread serves.
  static Connection* current();

  // Waits for the next request; false: none came in `patience`.
  bool next_request(std::chrono::milliseconds patience);
  // The head of a request has been read, and its body has `bytes`; none: only the client knows.
  void begin_body(std::optional<size_t> bytes);
  // Another request may follow: what was left of this one's body would be taken for it.
  bool is_at_its_end() const { return end_ == left_; }
  // No other request follows this one.
  void close_after() { end_.reset(); }
  // The client has closed its end.
  bool gone() const;
  bool sent_too_much() const { return left_ == 0; }

  bool is_readable() const override;
  bool is_writable() const override;
  ssize_t read(char* data, size_t size) override;
  ssize_t write(const char* data, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_; }

 private:
  using Clock = std::chrono::steady_clock;

  int socket_;
  size_t max_request_bytes_;
  std::chrono::seconds patience_;
  size_t left_ = 0;            // bytes that the client may still send of this request
  std::optional<size_t> end_;  // what left_ is at its end
  Clock::time_point deadline_{};
  std::string buffer_;
  size_t taken_ = 0;  // bytes of it
};

// httplib's server on such connections.
class BoundedServer : public httplib::Server {
 public:
  BoundedServer(size_t max_request_bytes, std::chrono::seconds patience)
      : max_request_bytes_(max_request_bytes), patience_(patience) {}

  // Once bound. httplib lets five connections wait for its one accept(): of more that come at once
  // the kernel drops packets, and clients send them again after 0.2 to 3 s.
  bool let_many_connect() { return ::listen(svr_sock_, SOMAXCONN) == 0; }
  // Serves until end(), which may come first: httplib's own stop() would be forgotten then. False:
  // no more connections can be accepted.
  bool run();
  void end();

 private:
  bool process_and_close_socket(socket_t socket) override;

  size_t max_request_bytes_;
  std::chrono::seconds patience_;
};

}  // namespace warpfuse::host
