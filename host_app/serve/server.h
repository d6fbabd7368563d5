#pragma once

#include "serve/access.h"
#include "serve/connection.h"
#include "serve/scheduler.h"

namespace warpfuse::host {

struct ServerOptions {
  Access access;
  int port;         // 0: a free one
  int64_t threads;  // connections at a time
  std::chrono::seconds timeout;
};

// The HTTP side: OpenAI's completions protocol in front of a scheduler.
class CompletionServer {
 public:
  // Binds the port. Throws Error(usage).
  explicit CompletionServer(const ServerOptions& options);

  int port() const { return port_; }

  // Answers requests until stop(); false: no more connections can be accepted.
  bool listen(Scheduler& scheduler, const std::string& model_name, const LanguageModelSpec& spec,
              const Tokenizer& tokenizer);

  // No new connections; those that there are end with their request.
  void stop() { server_.end(); }

 private:
  void route_fixed(Scheduler& scheduler, const std::string& model_name);
  void handle_errors();

  Access access_;
  BoundedServer server_;
  int port_ = 0;
};

}  // namespace warpfuse::host
