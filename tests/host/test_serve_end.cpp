// How the HTTP side of `warpfuse serve` ends: when it is told to, and when its socket fails.

#include <netinet/in.h>
#include <sys/socket.h>

#include <charconv>
#include <filesystem>
#include <future>

#include "fake_language_model.h"
#include "serve/server.h"
#include "support/catch.h"

using namespace warpfuse::host;

namespace {

constexpr std::chrono::seconds kPatienceAtEnd{10};

// A server of a model that nobody asks.
struct Listening {
  std::future<bool> listen() {
    return std::async(std::launch::async, [this] {
      return server.listen(scheduler, "counting", model.spec(), tokenizer);
    });
  }

  LanguageModel model = counting_model(257, 64);
  DecodeLoop loop{model, {.rows = 1, .sampling = {}, .top_logprobs = 2, .mixed = true}, nullptr};
  Tokenizer tokenizer;
  Scheduler scheduler{model, tokenizer, {}, loop, 1, 1};
  CompletionServer server{{.access = {.host = "127.0.0.1", .api_key = {}},
                           .port = 0,
                           .threads = 1,
                           .timeout = std::chrono::seconds(1)}};
};

// The socket of this process that listens on the port.
int listening_socket(int port) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const std::string name = entry.path().filename();
    int descriptor = -1;
    std::from_chars(name.data(), name.data() + name.size(), descriptor);
    int listens = 0;
    socklen_t size = sizeof(listens);
    sockaddr_in address{};
    socklen_t length = sizeof(address);
    if (getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0 &&
        getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length) == 0 &&
        ntohs(address.sin_port) == port) {
      return descriptor;
    }
  }
  return -1;
}

}  // namespace

TEST_CASE("a server that is stopped before it listens ends", "[serve]") {
  Listening served;
  served.server.stop();
  std::future<bool> listened = served.listen();
  const bool ended = listened.wait_for(kPatienceAtEnd) == std::future_status::ready;
  served.server.stop();  // where the first was forgotten
  CHECK(ended);
  CHECK(listened.get());
}

TEST_CASE("a server whose socket fails says so", "[serve]") {
  Listening served;
  const int socket = listening_socket(served.server.port());
  std::future<bool> listened = served.listen();
  REQUIRE(shutdown(socket, SHUT_RDWR) == 0);
  REQUIRE(listened.wait_for(kPatienceAtEnd) == std::future_status::ready);
  CHECK_FALSE(listened.get());
}
